"""Loops over arrays whose elements end at different times, computed block by block."""

from graphopt.forms.element_loops.row import FORM, RULES

__all__ = ["FORM", "RULES"]
