"""jax's own test harnesses of its primitives, as programs to rewrite.

The wheel of jax carries some 7,400 of them (`jax._src.internal_test_util.test_harnesses`, used there to
test exporting): every primitive with many shapes, types and dimension numbers. Each becomes up to three
programs: as it is; in a loop over three sets of arguments, where its operations may become native code; and
its gradient in such a loop. Importing this module turns 64-bit types on, as jax does for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.corpus.program import Built, Program

jax.config.update("jax_enable_x64", True)  # before the harnesses, whose types depend on it
from jax._src.internal_test_util import test_harnesses  # noqa: E402

FORMS: Final = ("alone", "loop", "gradient")
ITERATIONS: Final = 4
"""Of the loops: fewer would be unrolled by XLA, or not cut in parts."""

HARNESSES: Final[dict[str, Any]] = {
    harness.fullname: harness for harness in test_harnesses.all_harnesses if harness.filter("cpu")
}


class Unsuitable(Exception):
    """A harness has no program of a form: its arguments cannot be stacked, or nothing is differentiable."""


def program(name: str, form: str) -> Program:
    """The program of a harness in one of `FORMS`; building it may raise `Unsuitable`."""
    harness = HARNESSES[name]

    def build() -> Built:
        sets = [
            tuple(map(_array, harness.dyn_args_maker(np.random.RandomState(seed))))
            for seed in range(ITERATIONS)
        ]
        if form == "alone":
            return harness.dyn_fun, sets[0]
        stacked = jax.tree.map(_stacked, *sets)
        fn = harness.dyn_fun if form == "loop" else _gradient(harness.dyn_fun, sets[0])
        return _mapped(fn), stacked

    return Program("harness", form, build, f"{name}, {form}")


def _array(x: Any) -> Any:
    return x if isinstance(x, jax.Array) else np.asarray(x)


def _stacked(*arrays: Any) -> Any:
    if len({x.shape for x in arrays}) > 1:
        raise Unsuitable("its arguments have different shapes at every draw")
    return jnp.stack(arrays)


def _mapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*stacked: Any) -> Any:
        return lax.map(lambda arguments: fn(*arguments), stacked)

    return run


def _gradient(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Gradient of a sum over all differentiable results with respect to all differentiable arguments."""
    positions = [n for n, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.inexact)]
    shapes = jax.tree.leaves(jax.eval_shape(fn, *arguments))
    if not positions or not any(jnp.issubdtype(s.dtype, jnp.inexact) for s in shapes):
        raise Unsuitable("nothing to differentiate")

    def total(*arguments: Any) -> Any:
        leaves = [
            x for x in jax.tree.leaves(fn(*arguments)) if jnp.issubdtype(x.dtype, jnp.inexact)
        ]
        return sum(jnp.sum(jnp.real(x).astype(jnp.float32) ** 2) for x in leaves)

    return jax.grad(total, argnums=positions)
