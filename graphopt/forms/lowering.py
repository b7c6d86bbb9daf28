"""Rules that lower primitives for the CPU in their best form; jax's own rules stand behind them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from jax.interpreters import mlir

from graphopt import jax_private
from graphopt.forms.choosing import Choice, choose
from graphopt.forms.form import Array, Operation
from graphopt.forms.table import BY_PRIMITIVE
from graphopt.machine import own_costs

_logger = logging.getLogger("graphopt")
_lock = threading.Lock()
_local = threading.local()
_replaced: dict[Any, jax_private.LoweringEntry | None] = {}
"""Primitive -> jax's own entry for the CPU, None where it has none; empty while nothing is installed."""


def install(seen: Callable[[Choice], None] = lambda _: None) -> tuple[str, ...]:
    """Puts a rule in front of jax's own for every primitive of the table.

    Args:
        seen: called with every choice, in the thread that lowers.

    Returns:
        Names of primitives that this version of jax does not have where they are looked for.
    """
    missing = []
    with _lock:
        _restore()
        for name in BY_PRIMITIVE:
            primitive = jax_private.find_primitive(name)
            general = None if primitive is None else jax_private.lowering_entry(primitive)
            if primitive is None or general is None:
                missing.append(name)
                continue
            _replaced[primitive] = jax_private.own_cpu_entry(primitive)
            rule = partial(_lower, seen, general.rule, primitive)
            mlir.register_lowering(primitive, rule, platform="cpu", inline=general.inline)
    return tuple(missing)


def remove() -> None:
    """Puts jax's own rules back."""
    with _lock:
        _restore()


def installed() -> bool:
    """Whether primitives are lowered in their best form in this process."""
    return bool(_replaced)


def _restore() -> None:
    for primitive, entry in _replaced.items():
        jax_private.set_cpu_entry(primitive, entry)
    _replaced.clear()


@contextmanager
def disabled() -> Iterator[None]:
    """Within it, what this thread lowers is XLA's own way, whatever is installed.

    jax keeps what it has lowered: trace a function anew (``jax.jit(lambda *a: fn(*a))``) to be sure.
    """
    before = getattr(_local, "off", False)
    _local.off = True
    try:
        yield
    finally:
        _local.off = before


def _lower(
    seen: Callable[[Choice], None],
    default: Callable[..., Any],
    primitive: Any,
    ctx: Any,
    *args: Any,
    **params: Any,
) -> Any:
    """The lowering rule: a form where one pays, jax's own rule everywhere else."""
    choice = None
    if not getattr(_local, "off", False) and jax_private.lowers_for_one_cpu(ctx):
        try:
            choice = _chosen(primitive, ctx, params)
        except Exception:
            _logger.exception("no form was chosen for %s; it is lowered by jax", primitive)
    if choice is None or choice.form is None:
        return default(ctx, *args, **params)
    compute = partial(choice.form.compute, choice.operation)
    lowered = mlir.lower_fun(lambda *a: list(compute(a)), multiple_results=True)
    try:
        with disabled():
            results = lowered(ctx, *args)
    except Exception:
        _logger.exception("%s failed on %s", choice.form.name, choice.operation)
        return default(ctx, *args, **params)
    seen(choice)
    return results


def _chosen(primitive: Any, ctx: Any, params: dict[str, Any]) -> Choice | None:
    operands, results = _arrays(ctx.avals_in), _arrays(ctx.avals_out)
    if operands is None or results is None:
        return None
    return choose(Operation(primitive.name, operands, results, params), own_costs())


def _arrays(avals: Any) -> tuple[Array, ...] | None:
    """None where an operand is no plain array, or a dimension no number."""
    found = []
    for aval in avals:
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        if dtype is None or not isinstance(dtype, np.dtype):
            return None
        found.append(Array(tuple(shape), np.dtype(dtype)))
    return tuple(found)
