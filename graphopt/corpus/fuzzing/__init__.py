"""Small programs that together cover the operations and loop shapes of real code; random ones from a seed."""

from graphopt.corpus.fuzzing.programs import FUZZ

__all__ = ["FUZZ"]
