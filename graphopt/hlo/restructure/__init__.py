"""Replacing operations before anything else is decided: scatters as loops, and more."""

from graphopt.hlo.restructure.apply import apply_restructures, restructured, settle
from graphopt.hlo.restructure.result import Restructured
from graphopt.hlo.restructure.table import CODE, RESTRUCTURES, Restructure

__all__ = [
    "CODE",
    "RESTRUCTURES",
    "Restructure",
    "Restructured",
    "apply_restructures",
    "restructured",
    "settle",
]
