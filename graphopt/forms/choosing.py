"""Which form computes an operation: the fastest by estimate, where that beats XLA's own way clearly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.table import BY_PRIMITIVE
from graphopt.machine import CpuCosts

MARGIN: Final = 1.3
"""Estimates are good to such a factor: a form must promise more."""

MIN_SAVED_NS: Final = 2_000.0
"""Less is not worth another way to compile an operation."""


@dataclass(frozen=True)
class Choice:
    """What computes one operation.

    Attributes:
        operation: the operation.
        form: the form; None for XLA's own way.
        times: estimates of the form, or of the best one that was not taken; None if all are forbidden.
        rules: name of a form -> name of the rule that forbids it.
    """

    operation: Operation
    form: Form | None
    times: Times | None
    rules: dict[str, str]


def choose(operation: Operation, costs: CpuCosts) -> Choice:
    """The best form for an operation on a machine with these costs."""
    rules: dict[str, str] = {}
    best: tuple[Times, Form] | None = None
    for form in BY_PRIMITIVE.get(operation.primitive, ()):
        rule = form.forbids(operation)
        if rule is not None:
            rules[form.name] = rule
            continue
        times = form.times(operation, costs)
        if best is None or times.form_ns < best[0].form_ns:
            best = times, form
    if best is None:
        return Choice(operation, None, None, rules)
    times, form = best
    gains = (
        times.form_ns * MARGIN < times.default_ns
        and times.default_ns - times.form_ns > MIN_SAVED_NS
    )
    return Choice(operation, form if gains else None, times, rules)
