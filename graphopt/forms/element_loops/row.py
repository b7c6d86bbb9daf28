"""Loops that end with their slowest element, block by block.

A loop over arrays goes on while any element does: `vmap` makes such loops, and so do functions such as
`gammainc`. XLA passes over all elements until the last has ended. A block of a few vectors ends with its own
slowest element, and its state stays in the innermost cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.element_loops.estimates import BLOCK, times
from graphopt.forms.element_loops.loop import ElementLoop, NotByElement, element_loop
from graphopt.forms.form import Form, Operation

RULES: Final = {
    "loop-effects": "the loop has side effects",
    "loop-condition": "the loop does not go on while any element of an array does",
    "loop-elements": "the loop joins elements, or computes what no row treats by element",
    "loop-ended": "the loop changes elements that have ended",
    "loop-state": "the state has an array that is not one value for each element",
    "loop-short": "there are too few elements for blocks",
}

FEWEST: Final = 2048
"""Elements of the smallest batch in blocks."""


def forbids(operation: Operation) -> str | None:
    """Why a loop is left as it is."""
    if max((x.size for x in operation.results), default=0) < FEWEST:
        return "loop-short"
    try:
        loop = element_loop(operation)
    except NotByElement as reason:
        return str(reason)
    return "loop-short" if loop.batch.size < FEWEST else None


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The state at the end, each block's after its own trips.

    What the elements share is what it is after the most trips of any block.
    """
    with jax.enable_x64(True):
        whole = element_loop(operation)
        loop, own = whole.of_block(BLOCK), whole.at[whole.consts :]
        flat = whole.operands(operands)
        last = np.int32(whole.batch.size - BLOCK)

        def one(number: Any, carry: Any) -> Any:
            most, ended = carry
            at = jnp.minimum(number * np.int32(BLOCK), last)
            block = [
                x if axis is None else lax.dynamic_slice_in_dim(x, at, BLOCK, axis)
                for x, axis in zip(flat, whole.at, strict=True)
            ]
            trips, state = _run(loop, block[: loop.consts], block[loop.consts :])
            ended = [
                jnp.where(trips > most, new, all_of_it)
                if axis is None
                else lax.dynamic_update_slice_in_dim(all_of_it, new, at, axis)
                for all_of_it, new, axis in zip(ended, state, own, strict=True)
            ]
            return jnp.maximum(trips, most), ended

        start = [
            x if axis is None else jnp.zeros_like(x)
            for x, axis in zip(flat[loop.consts :], own, strict=True)
        ]
        blocks = np.int32(-(-whole.batch.size // BLOCK))
        ended = lax.fori_loop(np.int32(0), blocks, one, (jnp.int32(0), start))[1]
        return [x.reshape(r.dims) for x, r in zip(ended, operation.results, strict=True)]


def _run(loop: ElementLoop, consts: Sequence[Any], state: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Trips of a block, and its state at the end."""

    def goes_on(carry: Any) -> Any:
        return loop.goes_on([*consts, *carry[1]])

    def advance(carry: Any) -> Any:
        trips, state = carry
        return trips + np.int32(1), loop.advanced([*consts, *state])

    return lax.while_loop(goes_on, advance, (jnp.int32(0), list(state)))


FORM: Final = Form(
    "loop-blocks",
    ("while",),
    "block by block, each as long as its own elements go on",
    forbids,
    times,
    compute,
    exact=False,
    accuracy=(
        "the same operations in the same order; where a multiplication and an addition become one may differ,"
        " as between any two kernels, and with it how often an element on the edge of its condition goes on"
    ),
    unlike=frozenset({"loop-condition"}),
)
