"""Forms of a convolution: by a method for convolutions without holes, once per phase of the input."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from graphopt.forms.convolutions.arrays import named_operands, plain_result
from graphopt.forms.convolutions.estimates import default_ns, interleaved_ns, plain_ns
from graphopt.forms.convolutions.geometry import Convolution, convolution
from graphopt.forms.convolutions.methods.phases import Method, by_phases
from graphopt.forms.convolutions.rules import WIDE, forbids_all
from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

MAX_PHASES: Final = 16
"""Convolutions without holes that one operation may become."""


@dataclass(frozen=True)
class Way:
    """How a form computes the convolutions without holes that an operation consists of.

    Attributes:
        name: of the form.
        summary: what is computed instead, for people.
        method: what computes it.
        forbids: the rule that forbids it for one convolution without holes, or None.
        nanoseconds: what one convolution without holes takes.
        forbids_whole: the rule that forbids it for the operation, or None.
        types: of the elements.
    """

    name: str
    summary: str
    method: Method
    forbids: Callable[[Convolution], str | None]
    nanoseconds: Callable[[Convolution, CpuCosts], float]
    forbids_whole: Callable[[Convolution], str | None] = lambda _: None
    types: Container[np.dtype[Any]] = WIDE

    def form(self) -> Form:
        """The row of the table."""
        return Form(
            self.name,
            ("conv_general_dilated",),
            self.summary,
            self._forbids,
            self._times,
            self._compute,
            exact=False,
            accuracy="equal to rounding: products are added in another order, and those of infinite "
            "weights with the zeros of the padding are not left out",
            by_body=True,
        )

    def _forbids(self, operation: Operation) -> str | None:
        rule = forbids_all(operation, self.types)
        if rule is not None:
            return rule
        conv = convolution(operation)
        if prod(axis.phases for axis in conv.axes) > MAX_PHASES:
            return "convolution-phases"
        parts = [part for _, part, _ in conv.parts() if part is not None]
        if not parts:
            return "convolution-empty"
        rules = (self.forbids(part) for part in parts)
        return self.forbids_whole(conv) or next((rule for rule in rules if rule), None)

    def _times(self, operation: Operation, costs: CpuCosts) -> Times:
        conv = convolution(operation)
        parts = [part for _, part, _ in conv.parts() if part is not None]
        form = sum(self.nanoseconds(part, costs) for part in parts) + interleaved_ns(conv, costs)
        by_library = conv.channels_last or not operation.in_body
        return Times(default_ns(conv, costs) if by_library else plain_ns(conv, costs), form)

    def _compute(self, operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
        conv = convolution(operation)
        x, weights = named_operands(conv, operands)
        result = by_phases(self.method, conv, x, weights, operation.params["precision"])
        return [plain_result(conv, result, operation.results[0].dims)]
