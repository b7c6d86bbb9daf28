"""Forms of operations: other ways to compute a primitive of jax, chosen when jax lowers it for the CPU."""

from graphopt.forms.choosing import Choice, choose
from graphopt.forms.form import Array, Form, Operation, Times
from graphopt.forms.lowering import disabled, install, installed, remove
from graphopt.forms.table import FORMS, RULES

__all__ = [
    "FORMS",
    "RULES",
    "Array",
    "Choice",
    "Form",
    "Operation",
    "Times",
    "choose",
    "disabled",
    "install",
    "installed",
    "remove",
]
