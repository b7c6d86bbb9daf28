"""Which form computes an operation: the fastest by estimate, where that beats XLA's own way clearly."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from graphopt.errors import message
from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.table import ALL, BY_PRIMITIVE
from graphopt.machine import CpuCosts

MARGIN: Final = 1.3
"""Estimates are good to such a factor: a form must promise more."""

MIN_SAVED_NS: Final = 2_000.0
"""Less is not worth another way to compile an operation."""

NO_GAIN: Final = "no gain expected"


@dataclass(frozen=True)
class Choice:
    """What computes one operation.

    Attributes:
        operation: the operation.
        form: the form; None for XLA's own way.
        times: estimates of the form, or of the best one that was not taken; None if all are forbidden.
        rules: name of a form -> name of the rule that forbids it.
        failed: name of a form -> the error that it raised.
    """

    operation: Operation
    form: Form | None
    times: Times | None
    rules: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why the operation stays with XLA: names of rules, or that no gain is expected; else empty."""
        if self.form is not None:
            return ""
        return NO_GAIN if self.times is not None else ", ".join(sorted(set(self.rules.values())))


def choose(
    operation: Operation, costs: CpuCosts, names: Container[str] = ALL, *, always: bool = False
) -> Choice:
    """The best form for an operation on a machine with these costs.

    Args:
        operation: the operation.
        costs: of the machine.
        names: of the forms that may be used.
        always: take the best form that nothing forbids, whatever it gains: for trying forms out.
    """
    rules: dict[str, str] = {}
    failed: dict[str, str] = {}
    best: tuple[Times, Form] | None = None
    for form in BY_PRIMITIVE.get(operation.primitive, ()):
        if form.name not in names:
            continue
        try:
            rule = form.forbids(operation)
            times = form.times(operation, costs) if rule is None else None
        except Exception as error:  # a row's mistake must not stop the user's program
            failed[form.name] = message(error)
            continue
        if rule is not None and rule not in form.unlike:
            rules[form.name] = rule
        if times is not None and (best is None or times.form_ns < best[0].form_ns):
            best = times, form
    if best is None:
        return Choice(operation, None, None, rules, failed)
    times, form = best
    gains = always or (
        times.form_ns * MARGIN < times.default_ns
        and times.default_ns - times.form_ns > MIN_SAVED_NS
    )
    return Choice(operation, form if gains else None, times, rules, failed)
