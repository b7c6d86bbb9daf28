"""Forms of operations: other ways to compute a primitive of jax, chosen when jax lowers it for the CPU."""

from graphopt.forms.choosing import Choice, choose
from graphopt.forms.form import Array, Form, Operation, Times
from graphopt.forms.lowering import disabled, enabled, install, installed, remove
from graphopt.forms.switch import names_in_use
from graphopt.forms.table import ALL, FORMS, RULES

__all__ = [
    "ALL",
    "FORMS",
    "RULES",
    "Array",
    "Choice",
    "Form",
    "Operation",
    "Times",
    "choose",
    "disabled",
    "enabled",
    "install",
    "installed",
    "names_in_use",
    "remove",
]
