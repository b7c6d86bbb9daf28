"""Replacing operations before anything else is decided: scatters as loops, and more."""

from graphopt.hlo.restructure.apply import apply_restructures, restructured, settle
from graphopt.hlo.restructure.result import Restructured
from graphopt.hlo.restructure.table import CODE, REPLACES, RESTRUCTURES, Restructure, replacing

__all__ = [
    "CODE",
    "REPLACES",
    "RESTRUCTURES",
    "Restructure",
    "Restructured",
    "apply_restructures",
    "replacing",
    "restructured",
    "settle",
]
