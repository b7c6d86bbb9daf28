"""Parts of programs as modules of their own: cut, compared in duels, composed.

A task is a loop with its body, or a run of kernels. It compiles and runs in milliseconds where its program
takes seconds, and the same one recurs in many programs.
"""

from graphopt.policy.alternatives.alternative import STOP, Alternative, apply
from graphopt.policy.alternatives.table import AlternativeTable, alternatives
from graphopt.tasks.composing import Composed, compose
from graphopt.tasks.cutting import Task, cut
from graphopt.tasks.duel import Duel, Duels

__all__ = [
    "STOP",
    "Alternative",
    "AlternativeTable",
    "Composed",
    "Duel",
    "Duels",
    "Task",
    "alternatives",
    "apply",
    "compose",
    "cut",
]
