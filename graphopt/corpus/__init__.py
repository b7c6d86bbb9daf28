"""Programs that exercise the optimizer.

``graphopt.corpus.demo.DEMO`` holds a few realistic workloads and
``graphopt.corpus.fuzzing.FUZZ`` many small ones that cover the operations and loop shapes found
in real code.  Both modules import jax, so neither is imported here.
"""

from graphopt.corpus.program import Program, ProgramSet

__all__ = ["Program", "ProgramSet"]
