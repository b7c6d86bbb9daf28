"""Whether a loop leaves the elements alone that have ended.

A loop that goes on while *any* element does may still change those that have ended. What it makes of them is
read from its body, with the element's own condition taken for what it is then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax.extend.core as jex
import numpy as np

from graphopt.forms.element_loops.condition import Condition

_MOVES: Final = frozenset(("broadcast_in_dim", "copy", "reshape", "squeeze"))
"""Primitives that leave a value that is the same everywhere as it is."""


def leaves_ended(condition: Condition, body: Any, consts: int, batched: Sequence[bool]) -> bool:
    """Whether an element's state stays as it is once the element has ended.

    Args:
        condition: of the loop, from constants and then the state.
        body: closed jaxpr without calls, from other constants and the state to the next state.
        consts: number of constants of the condition.
        batched: which parts of the state belong to the elements; the others are shared.
    """
    values = Values()
    state = [values.number(("state", number)) for number in range(len(batched))]
    inputs = [values.number(("constant of the condition", number)) for number in range(consts)]
    (ended,) = values.results(condition.element, [*inputs, *state])
    shared = {number for number, own in zip(state, batched, strict=True) if not own}
    if values.reads[ended] & shared:
        return False  # what all share may let an element go on again
    others = range(len(body.jaxpr.invars) - len(batched))
    inputs = [values.number(("constant of the body", number)) for number in others]
    known = {ended: values.true if condition.ends else values.false}
    made = values.results(body, [*inputs, *state], known)
    return all(
        not own or new == known.get(old, old)
        for old, new, own in zip(state, made, batched, strict=True)
    )


class Values:
    """Numbers of values: those that are computed alike, from the same, have the same number.

    Attributes:
        false: number of the condition that does not hold.
        true: number of the condition that holds.
        reads: value -> numbers of the inputs that it is computed from.
    """

    def __init__(self) -> None:
        """Knows the two conditions."""
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.reads: list[frozenset[int]] = []
        self.false = self.number(("known", False))
        self.true = self.number(("known", True))

    def number(self, value: tuple[Any, ...], operands: Sequence[int] | None = None) -> int:
        """The number of a value; without operands it is an input."""
        key = (*value, None if operands is None else tuple(operands))
        number = self._numbers.setdefault(key, len(self.reads))
        if number == len(self.reads):
            read = [self.reads[operand] for operand in operands or ()]
            self.reads.append(frozenset({number} if operands is None else {}).union(*read))
        return number

    def results(
        self, function: Any, inputs: Sequence[int], given: Mapping[int, int] | None = None
    ) -> list[int]:
        """Numbers of the results of a closed jaxpr.

        Args:
            function: the jaxpr.
            inputs: numbers of the operands.
            given: conditions -> what they are taken for.
        """
        given, jaxpr = given or {}, function.jaxpr
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {
            v: self._constant(x) for v, x in zip(jaxpr.constvars, function.consts, strict=True)
        }

        def read(atom: Any) -> int:
            number = self._constant(atom.val) if isinstance(atom, jex.Literal) else known[atom]
            return given.get(number, number)

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            for place, variable in enumerate(equation.outvars):
                known[variable] = self._made(equation, place, operands)
        return [read(atom) for atom in jaxpr.outvars]

    def _made(self, equation: Any, place: int, operands: Sequence[int]) -> int:
        name = equation.primitive.name
        first = operands[0] if operands else None
        if first in (self.false, self.true):
            if name in _MOVES:
                return operands[0]
            if name == "not":
                return self.true if first == self.false else self.false
            if name == "select_n":
                return operands[1 if first == self.false else 2]
        if name == "and" and self.false in operands:
            return self.false
        if name == "or" and self.true in operands:
            return self.true
        return self.number((name, str(sorted(equation.params.items())), place), operands)

    def _constant(self, value: Any) -> int:
        array = np.asarray(value)
        content = array.tobytes() if array.size == 1 else id(value)
        return self.number(("constant", array.dtype.name, array.shape, content), ())
