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

Key = Any
"""A value as a tree: of an input, a constant, or a primitive with the keys of its operands."""

FALSE: Final = ("known", False)
TRUE: Final = ("known", True)

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
    state = [("state", number) for number in range(len(batched))]
    inputs = [("constant of the condition", number) for number in range(consts)]
    (key_of_ended,) = Keys(condition.element, [*inputs, *state]).results()
    if any(
        key in _leaves(key_of_ended) for key, own in zip(state, batched, strict=True) if not own
    ):
        return False  # what all share may let an element go on again
    others = len(body.jaxpr.invars) - len(batched)
    inputs = [("constant of the body", number) for number in range(others)]
    known = {key_of_ended: TRUE if condition.ends else FALSE}
    made = Keys(body, [*inputs, *state], known).results()
    return all(
        not own or new == known.get(old, old)
        for old, new, own in zip(state, made, batched, strict=True)
    )


def _leaves(key: Key) -> set[Key]:
    if len(key) == 4:
        return set().union(*(_leaves(operand) for operand in key[3]))
    return {key}


class Keys:
    """Trees of all values of a function without calls.

    Args:
        function: closed jaxpr.
        inputs: keys of the operands, in their order.
        given: keys of conditions -> what they are taken for.
    """

    def __init__(
        self, function: Any, inputs: Sequence[Key], given: Mapping[Key, Key] | None = None
    ) -> None:
        """Reads the equations in their order."""
        self._function = function
        self._given = given or {}
        self._known: dict[Any, Key] = dict(zip(function.jaxpr.invars, inputs, strict=True))
        for variable, value in zip(function.jaxpr.constvars, function.consts, strict=True):
            self._known[variable] = _constant(value)
        for equation in function.jaxpr.eqns:
            operands = [self._of(atom) for atom in equation.invars]
            for number, variable in enumerate(equation.outvars):
                self._known[variable] = _made(equation, number, operands)

    def results(self) -> list[Key]:
        """Keys of the results."""
        return [self._of(atom) for atom in self._function.jaxpr.outvars]

    def _of(self, atom: Any) -> Key:
        key = _constant(atom.val) if isinstance(atom, jex.Literal) else self._known[atom]
        return self._given.get(key, key)


def _made(equation: Any, number: int, operands: Sequence[Key]) -> Key:
    name = equation.primitive.name
    first = operands[0] if operands else None
    if name in _MOVES and first in (FALSE, TRUE):
        return first
    if name == "not" and first in (FALSE, TRUE):
        return TRUE if first == FALSE else FALSE
    if name == "and" and FALSE in operands:
        return FALSE
    if name == "or" and TRUE in operands:
        return TRUE
    if name == "select_n" and first in (FALSE, TRUE):
        return operands[1 if first == FALSE else 2]
    return (name, str(sorted(equation.params.items())), number, tuple(operands))


def _constant(value: Any) -> Key:
    array = np.asarray(value)
    return ("constant", (array.dtype.name, array.shape, array.tobytes()))
