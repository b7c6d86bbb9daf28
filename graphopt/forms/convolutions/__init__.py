"""Convolutions without XLA's own loops: as shifted arrays, as sums and as matrix products."""

from graphopt.forms.convolutions.rules import RULES
from graphopt.forms.convolutions.table import FORMS

__all__ = ["FORMS", "RULES"]
