"""Loops whose elements end at different times, as jax hands them to its lowering rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from graphopt.forms.element_loops.batch import Batch, Entangled, Value
from graphopt.forms.element_loops.condition import Condition, take_apart
from graphopt.forms.element_loops.ended import leaves_ended
from graphopt.forms.element_loops.inline import inlined
from graphopt.forms.element_loops.per_element import evaluate
from graphopt.forms.element_loops.placed import split
from graphopt.forms.form import Array, Operation


class NotByElement(Exception):
    """A loop does not treat elements apart; the message is the name of the rule that says so."""


@dataclass(frozen=True)
class ElementLoop:
    """A loop that treats the elements of a batch apart.

    Operands are constants of the condition, constants of the body, and the state, in this order.

    Attributes:
        batch: the batch, and the block of it for which all methods compute.
        condition: when the loop goes on.
        body: closed jaxpr without calls, from constants and state to state.
        cond_consts: number of constants of the condition.
        consts: number of all constants.
        at: for each operand, the dimension at which the batch begins; None where it is shared.
        ahead: closed jaxprs of more constants, from those of the condition and of the body; None for none.
        given: number of constants of the condition and of the body that are given.
    """

    batch: Batch
    condition: Condition
    body: Any
    cond_consts: int
    consts: int
    at: tuple[int | None, ...]
    ahead: tuple[Any | None, Any | None]
    given: tuple[int, int]

    def operands(self, given: Sequence[Any]) -> list[Any]:
        """All operands in one block, from those that the program gives to the loop."""
        start, found = 0, []
        for count, ahead in zip(self.given, self.ahead, strict=True):
            consts = list(given[start : start + count])
            found += consts + (jex.jaxpr_as_fun(ahead)(*consts) if ahead is not None else [])
            start += count
        found += given[start:]
        return [
            x if at is None else x.reshape(self.batch.blocked(x.shape, at))
            for x, at in zip(found, self.at, strict=True)
        ]

    def of_block(self, block: int) -> ElementLoop:
        """The same loop over a block of so many elements."""
        return replace(self, batch=replace(self.batch, block=block))

    def goes_on(self, operands: Sequence[Any]) -> Any:
        """Whether any element goes on, and all that is shared holds; bool scalar."""
        on = self._elements(operands).any()
        for value in evaluate(self.condition.shared, self._of_condition(operands), self.batch):
            on = on & value.array
        return on

    def advanced(self, operands: Sequence[Any]) -> list[Any]:
        """The state after one more trip."""
        values = self._values(operands)
        made = evaluate(self.body, values[self.cond_consts :], self.batch)
        before = values[self.consts :]
        if [value.at for value in made] != [value.at for value in before]:
            raise Entangled
        if not self.condition.own:
            return [value.array for value in made]
        on = self._elements(operands)
        return [
            jnp.where(on.reshape(on.shape + (1,) * (new.array.ndim - 1)), new.array, old.array)
            for new, old in zip(made, before, strict=True)
        ]

    def _elements(self, operands: Sequence[Any]) -> Any:
        """Whether each element goes on; bool array with one dimension, of the block."""
        (found,) = evaluate(self.condition.element, self._of_condition(operands), self.batch)
        if found.at != 0:
            raise Entangled
        return ~found.array if self.condition.ends else found.array

    def _values(self, operands: Sequence[Any]) -> list[Value]:
        return [Value(x, at) for x, at in zip(operands, self.at, strict=True)]

    def _of_condition(self, operands: Sequence[Any]) -> list[Value]:
        values = self._values(operands)
        return [*values[: self.cond_consts], *values[self.consts :]]


def element_loop(operation: Operation) -> ElementLoop:
    """A loop as one over elements, in one block.

    Raises:
        NotByElement: it is none.
    """
    params = operation.params
    counts = params["cond_nconsts"], params["body_nconsts"]
    return _found(
        operation.operands, operation.results, params["cond_jaxpr"], params["body_jaxpr"], counts
    )


@lru_cache(maxsize=4)  # whether it may be one, what it takes, and the loop itself are asked in turn
def _found(
    operands: tuple[Array, ...],
    results: tuple[Array, ...],
    whole_cond: Any,
    whole_body: Any,
    counts: tuple[int, int],
) -> ElementLoop:
    if whole_cond.effects or whole_body.effects:
        raise NotByElement("loop-effects")
    condition = inlined(whole_cond)
    apart = take_apart(condition)
    if apart is None:
        raise NotByElement("loop-condition")
    dims = tuple(apart.element.jaxpr.outvars[0].aval.shape)
    batch = Batch(dims, prod(dims))
    of_cond = split(condition, counts[0], batch)
    of_body = split(inlined(whole_body), counts[1], batch)
    apart = take_apart(of_cond.rest)
    assert apart is not None  # what is made ahead does not change the condition
    given = [x.dims for x in operands]
    found = list(map(batch.found, given[: sum(counts)]))
    at = [
        *found[: counts[0]],
        *map(batch.found, _dims(of_cond.ahead)),
        *found[counts[0] :],
        *map(batch.found, _dims(of_body.ahead)),
        *(0 if batch.stands(dims) else None for dims in given[sum(counts) :]),
    ]
    cond_consts = counts[0] + of_cond.count
    loop = ElementLoop(
        batch, apart, of_body.rest, cond_consts, cond_consts + counts[1] + of_body.count,
        tuple(at), (of_cond.ahead, of_body.ahead), counts,
    )  # fmt: skip
    _check(loop, operands, results)
    return loop


def _dims(function: Any | None) -> list[tuple[int, ...]]:
    """Dimensions of the results of a closed jaxpr; none where there is none."""
    return [] if function is None else [v.aval.shape for v in function.jaxpr.outvars]


def _check(loop: ElementLoop, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
    state = [at is not None for at in loop.at[loop.consts :]]
    arrays = [bool(x.dims) or loop.condition.own for x in results]
    if loop.batch.size == 0 or any(a and not own for a, own in zip(arrays, state, strict=True)):
        raise NotByElement("loop-state")
    if not loop.condition.own and not leaves_ended(
        loop.condition, loop.body, loop.cond_consts, state
    ):
        raise NotByElement("loop-ended")
    given = [jax.ShapeDtypeStruct(x.dims, x.dtype) for x in operands]

    def trip(*given: Any) -> Any:
        operands = loop.operands(given)
        return loop.goes_on(operands), loop.advanced(operands)

    try:
        with jax.enable_x64(True):
            jax.eval_shape(trip, *given)
    except Entangled:
        raise NotByElement("loop-elements") from None
