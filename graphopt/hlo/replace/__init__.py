"""Applying restructures: a new module, and decisions carried over to its graph."""

from graphopt.hlo.replace.apply import apply_restructures, restructured, settle
from graphopt.hlo.replace.result import Restructured

__all__ = ["Restructured", "apply_restructures", "restructured", "settle"]
