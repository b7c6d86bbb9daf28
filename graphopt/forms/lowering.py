"""Rules that lower primitives for the CPU in their best form; jax's own rules stand behind them.

Which forms are in use is a matter of the process (`install`) and, above that, of the thread (`enabled`,
`disabled`): jax lowers in the thread that traces. The rules themselves stand in jax's table while anybody
needs them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from graphopt import jax_private
from graphopt.errors import message
from graphopt.forms.bodies import stands_in_body
from graphopt.forms.choosing import Choice, choose
from graphopt.forms.form import Array, Form, Operation
from graphopt.forms.switch import names_in_use
from graphopt.forms.table import ALL, BY_PRIMITIVE
from graphopt.forms.users import are_reduced, are_sliced
from graphopt.machine import own_costs

_logger = logging.getLogger("graphopt")


def _ignore(*_: Any) -> None:
    pass


@dataclass(frozen=True)
class Use:
    """Which forms are in use, and who is told.

    Attributes:
        names: of the forms.
        seen: called with every choice of a form, in the thread that lowers.
        kept: called with the choices that leave an operation to XLA.
        failed: called with the name of a form and its error.
        always: forms are taken wherever nothing forbids them.
    """

    names: frozenset[str] = ALL
    seen: Callable[[Choice], None] = _ignore
    kept: Callable[[Choice], None] = _ignore
    failed: Callable[[str, str], None] = _ignore
    always: bool = False


@dataclass(frozen=True)
class _Replaced:
    """jax's own entry for the CPU (None where it has none), and the one in its place."""

    own: Any
    ours: Any


class _Local(threading.local):
    """What holds for one thread.

    Attributes:
        use: a `Use`, None for XLA's own way, () for what is installed.
        loops: loops around what is lowered now.
    """

    use: Use | tuple[()] | None = ()
    loops: int = 0


_lock = threading.Lock()
_local = _Local()
_installed: Use | None = None
_users = 0
"""Threads inside `enabled`."""
_replaced: dict[Any, _Replaced] = {}
"""Primitives with a rule of ours."""


def install(
    seen: Callable[[Choice], None] = _ignore,
    *,
    kept: Callable[[Choice], None] = _ignore,
    failed: Callable[[str, str], None] = _ignore,
    names: Iterable[str] = ALL,
) -> tuple[str, ...]:
    """Uses forms for all that this process lowers for the CPU from now on.

    Args:
        seen: called with every choice of a form, in the thread that lowers.
        kept: called with the choices that leave an operation to XLA.
        failed: called with the name of a form and its error.
        names: of the forms that may be used.

    Returns:
        Names of primitives that this version of jax does not have where they are looked for.
    """
    global _installed
    with _lock:
        missing = _put_rules()
        _installed = Use(frozenset(names), seen, kept, failed)
    return missing


def remove() -> None:
    """Puts jax's own rules back; rules that others have put over ours stay."""
    global _installed
    with _lock:
        _installed = None
        if not _users:
            _take_rules()


def installed() -> bool:
    """Whether primitives are lowered in their best form in this process."""
    return _installed is not None


@contextmanager
def disabled() -> Iterator[None]:
    """Within it, what this thread lowers is XLA's own way, whatever is installed.

    jax keeps what it has lowered: trace a function anew (``jax.jit(lambda *a: fn(*a))``) to be sure.
    """
    before, _local.use = _local.use, None
    try:
        yield
    finally:
        _local.use = before


@contextmanager
def enabled(names: Iterable[str] | None = None, *, always: bool = False) -> Iterator[list[Choice]]:
    """Within it, this thread lowers primitives in their best form, whatever is installed.

    Args:
        names: of the forms that may be used; by default those that are installed, or that `install`
            would use.
        always: take forms wherever nothing forbids them, whatever they gain: for trying them out.

    Yields:
        a list that takes in every choice of a form. See `disabled` about what jax keeps.
    """
    global _users
    choices: list[Choice] = []
    own = _installed
    if names is None:
        names = names_in_use() if own is None else own.names
    with _lock:
        _users += 1
        _put_rules()
    before, _local.use = _local.use, Use(frozenset(names), choices.append, always=always)
    try:
        yield choices
    finally:
        _local.use = before
        with _lock:
            _users -= 1
            if not _users and _installed is None:
                _take_rules()


def _put_rules() -> tuple[str, ...]:
    """Puts a rule in front of the one that stands, for every primitive of the table."""
    missing = []
    for name in BY_PRIMITIVE:
        primitive = jax_private.find_primitive(name)
        standing = None if primitive is None else jax_private.lowering_entry(primitive)
        if primitive is None or standing is None:
            missing.append(name)
            continue
        replaced = _replaced.get(primitive)
        if replaced is not None and replaced.ours is jax_private.own_cpu_entry(primitive):
            continue
        own = jax_private.own_cpu_entry(primitive)
        rule = partial(_lower, primitive, None if own is None else standing.rule)
        mlir.register_lowering(primitive, rule, platform="cpu", inline=standing.inline)
        _replaced[primitive] = _Replaced(own, jax_private.own_cpu_entry(primitive))
    return tuple(missing)


def _take_rules() -> None:
    for primitive, replaced in _replaced.items():
        if jax_private.own_cpu_entry(primitive) is replaced.ours:
            jax_private.set_cpu_entry(primitive, replaced.own)
    _replaced.clear()


def _use() -> Use | None:
    """What holds for this thread."""
    use = _local.use
    return _installed if isinstance(use, tuple) else use


def _lower(
    primitive: Any, own: Callable[..., Any] | None, ctx: Any, *args: Any, **params: Any
) -> Any:
    """The lowering rule: a form where one pays, jax's own rule everywhere else."""
    use = _use()
    if use is not None and jax_private.lowers_for_one_cpu(ctx):
        choice = _chosen(primitive, ctx, params, use)
        if choice is not None and choice.form is not None:
            results = _written(choice, ctx, args, use)
            if results is not None:
                return results
    # A rule for all platforms is looked up late: somebody may have replaced it meanwhile.
    default = own or jax_private.common_rule(primitive)
    if default is None:
        raise NotImplementedError(f"jax has no rule to lower {primitive} for the CPU any more")
    is_loop = primitive.name == "while"
    _local.loops += is_loop
    try:
        return default(ctx, *args, **params)
    finally:
        _local.loops -= is_loop


def _chosen(primitive: Any, ctx: Any, params: dict[str, Any], use: Use) -> Choice | None:
    """What computes an operation; None where jax does and nothing was chosen."""
    try:
        operands, results = _arrays(ctx.avals_in), _arrays(ctx.avals_out)
        if operands is None or results is None:
            return None
        in_loop = _local.loops > 0
        operation = Operation(primitive.name, operands, results, params, in_loop, in_loop)
        operation = _with_place(operation, primitive)
        choice = choose(operation, own_costs(), use.names, always=use.always)
        for name, error in choice.failed.items():
            _logger.warning("%s failed on %s: %s", name, operation, error)
            use.failed(name, error)
        if choice.form is None:
            use.kept(choice)
        return choice
    except Exception:
        _logger.exception("no form was chosen for %s; it is lowered by jax", primitive)
        return None


def _with_place(operation: Operation, primitive: Any) -> Operation:
    """The operation with where it stands and what reads its result, where that matters and jax says so."""
    forms = BY_PRIMITIVE[primitive.name]
    by_body = any(form.by_body for form in forms)
    if by_body and operation.in_body:
        return operation
    asked = by_body or any(form.apart and _allows(form, operation) for form in forms)
    levels = jax_private.lowered_equations() if asked else []
    if not levels or levels[0][1].primitive is not primitive:
        return operation
    if by_body:
        return replace(operation, in_body=stands_in_body(levels))
    reduced = primitive.name in own_costs().reduced_functions and are_reduced(levels)
    return replace(operation, reduced=reduced, sliced=are_sliced(levels))


def _allows(form: Form, operation: Operation) -> bool:
    """Whether a form may compute an operation, whoever reads it; one that raises is reported by `choose`."""
    try:
        return form.forbids(operation) is None
    except Exception:
        return False


def _written(choice: Choice, ctx: Any, args: Any, use: Use) -> Any | None:
    """An operation in its form; None where the form failed."""
    form = choice.form
    assert form is not None  # the caller has looked

    def compute(*operands: Any) -> list[Any]:
        results = list(form.compute(choice.operation, operands))
        if form.stands_apart(choice.operation):
            results = [jax.lax.optimization_barrier(result) for result in results]
        found = [(tuple(r.shape), np.dtype(r.dtype)) for r in results]
        wanted = [(r.dims, r.dtype) for r in choice.operation.results]
        if found != wanted:
            raise TypeError(f"the form makes {found} in place of {wanted}")
        return results

    try:
        # What the user has set for his own code does not hold for ours.
        with (
            nullcontext() if form.of_program else disabled(),
            jax.numpy_rank_promotion("allow"),
            jax.numpy_dtype_promotion("standard"),
        ):
            lowered = mlir.lower_fun(compute, multiple_results=True)
            results = lowered(jax_private.lowered_apart(ctx), *args)
        use.seen(choice)
    except Exception as error:
        _logger.exception("%s failed on %s; it is lowered by jax", form.name, choice.operation)
        use.failed(form.name, message(error))
        return None
    return results


def _arrays(avals: Any) -> tuple[Array, ...] | None:
    """None where an operand is no plain array, or a dimension no number."""
    found = []
    for aval in avals:
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        if dtype is None or not isinstance(dtype, np.dtype) or dtype == jax.dtypes.float0:
            return None
        found.append(Array(tuple(shape), np.dtype(dtype)))
    return tuple(found)
