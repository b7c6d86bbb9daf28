"""How gradients pass back through operations.

Common operations have a rule in terms of lazy operations, which run on every tier. All others use
jax: the operation's own vector-Jacobian product becomes an operation; XLA merges the forward part that it
repeats with the one that is in the graph already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.lazy.core import dtypes
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Aval, Instr, Node, Op, tuple_aval
from graphopt.lazy.ops.arrays import OPS as ARRAY
from graphopt.lazy.ops.elementwise import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record, record1

Rule = Callable[..., tuple[Any, ...]]
"""(gradient, operand tensors, result tensor, params) -> gradient per operand; None for none."""

ZERO: Final = frozenset(
    """equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    logical_not sign floor ceil round trunc isfinite isinf isnan signbit argmax argmin argsort
    count_nonzero any all searchsorted stop_gradient eye iota bitwise_and bitwise_or""".split()
)
"""Operations through which no gradient passes."""


def pull_back(
    instr: Instr, inputs: tuple[Node, ...], output: Node, gradient: Any, needs: list[bool]
) -> tuple[Any, ...]:
    """Gradients of an operation's operands from that of its result.

    Args:
        instr: the operation.
        inputs: its operands.
        output: its result.
        gradient: of the result: a tensor, or a dict part -> tensor for several outputs.
        needs: which operands need one.
    """
    name = instr.op.name
    if name in ZERO:
        return (None,) * len(inputs)
    if name == "part":
        return ({instr.params[0]: gradient},)
    rule = RULES.get(name)
    if rule is None or any(n.aval.dtype.kind == "complex" for n in (*inputs, output)):
        return _through_jax(instr, inputs, gradient, needs)
    tensors = [recorder.hold(node) for node in inputs]
    if instr.casts:
        wanted = instr.cast
        tensors = [
            x if x.dtype == wanted else recorder.hold(operands.cast(x._node, _dtype(wanted)))
            for x in tensors
        ]
    found = rule(gradient, tensors, recorder.hold(output), instr.params, needs)
    return tuple(
        _fitted(part, node) if need and part is not None else None
        for part, node, need in zip(found, inputs, needs, strict=True)
    )


def _dtype(dtype: Any) -> DType:
    return dtypes.from_numpy(dtype)


def _fitted(part: Any, node: Node) -> Any:
    """A gradient summed over broadcast axes and in the operand's dtype."""
    shape = node.aval.shape
    if part.shape != shape:
        extra = part.ndim - len(shape)
        axes = (
            *range(extra),
            *(k + extra for k, n in enumerate(shape) if n == 1 and part.shape[k + extra] != 1),
        )
        part = record(ARRAY["sum"], (part._node,), (axes, False, part.dtype.np))
        part = _reshaped(part, shape)
    return recorder.hold(operands.cast(part._node, node.aval.dtype))


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else record(ARRAY["reshape"], (x._node,), (shape,))


def _one(name: str, x: Any) -> Any:
    return record1(OPS[name], x._node)


def _where(test: Any, a: Any, b: Any) -> Any:
    """`a` where the test holds, else `b`; numbers take the dtype of the other."""
    like = a if hasattr(a, "_node") else b
    nodes = [operands.operand(x, like._node, "where") for x in (a, b)]
    return record(ARRAY["where"], (test._node, *nodes))


def _unary(derivative: Any) -> Rule:
    return lambda g, xs, y, params, needs: (derivative(g, xs[0], y),)


def _extremum(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    """Ties share the gradient equally, as in jax."""
    a, b = xs
    zeros = _zeros_like(y)
    half = _where(a == b, 0.5, zeros)
    first = _where(y == a, 1.0, zeros) - half
    second = _where(y == b, 1.0, zeros) - half
    return g * first, g * second


def _pow(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    x, n = xs
    first = g * n * _where(n == 0, 1.0, x ** (n - 1)) if needs[0] else None
    second = None
    if needs[1]:
        safe = _where(x > 0, x, 1.0)
        second = g * _where(x > 0, y * _one("log", safe), 0.0)
    return first, second


def _expand(g: Any, axes: tuple[int, ...], keepdims: bool, shape: tuple[int, ...]) -> Any:
    if not keepdims:
        g = _reshaped(g, tuple(1 if k in axes else n for k, n in enumerate(shape)))
    return record(ARRAY["broadcast_to"], (g._node,), (shape,))


def _sum(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    return (_expand(g, params[0], params[1], xs[0].shape),)


def _mean(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    count = float(np.prod([xs[0].shape[a] for a in params[0]], dtype=np.int64))
    return (_expand(g / count, params[0], params[1], xs[0].shape),)


def _peak(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    x = xs[0]
    hit = x == _expand(y, params[0], params[1], x.shape)
    ones = recorder.hold(operands.cast(hit._node, g.dtype))
    count = record(ARRAY["sum"], (ones._node,), (params[0], True, g.dtype.np))
    return (_expand(g, params[0], params[1], x.shape) * ones / count,)


def _matmul(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    a, b = xs
    if a.ndim == 1 or b.ndim == 1:
        row, column = a.ndim == 1, b.ndim == 1
        a2 = _reshaped(a, (1, *a.shape)) if row else a
        b2 = _reshaped(b, (*b.shape, 1)) if column else b
        shape = list(g.shape)
        if column:
            shape.append(1)
        if row:
            shape.insert(len(shape) - 1, 1)
        found = _matmul(_reshaped(g, tuple(shape)), (a2, b2), y, params, needs)
        first = _flat_batch(found[0], a) if needs[0] else None
        second = _flat_batch(found[1], b) if needs[1] else None
        return first, second
    return (g @ b.mT if needs[0] else None), (_second(a, g, b) if needs[1] else None)


def _second(a: Any, g: Any, b: Any) -> Any:
    if b.ndim == 2 and a.ndim > 2:  # a shared right-hand matrix: one product over all batches
        rows = (int(np.prod(a.shape[:-1])), a.shape[-1])
        return _reshaped(a, rows).mT @ _reshaped(g, (rows[0], g.shape[-1]))
    return a.mT @ g


def _flat_batch(part: Any, x: Any) -> Any:
    """Gradient of a vector that was multiplied as a matrix."""
    if x.ndim != 1:
        return part
    axes = tuple(range(part.ndim - 2))
    if axes:
        part = record(ARRAY["sum"], (part._node,), (axes, False, part.dtype.np))
    return _reshaped(part, x.shape)


def _concat(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    (axis,) = params
    before = (slice(None),) * axis
    found, start = [], 0
    for x in xs:
        stop = start + x.shape[axis]
        found.append(_static_slice(g, before, start, stop))
        start = stop
    return tuple(found)


def _static_slice(g: Any, before: tuple[Any, ...], start: int, stop: int) -> Any:
    from graphopt.lazy.ops.indexing import BASIC

    items = (*((("s", None, None, None),) * len(before)), ("s", start, stop, 1))
    return record(BASIC, (g._node,), (items,))


def _stack(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    from graphopt.lazy.ops.indexing import BASIC

    (axis,) = params
    fill = (("s", None, None, None),) * axis
    return tuple(record(BASIC, (g._node,), ((*fill, ("i", k)),)) for k in range(len(xs)))


def _permute(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    return (record(ARRAY["permute_dims"], (g._node,), (tuple(np.argsort(params[0]).tolist()),)),)


def _getitem(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    from graphopt.lazy.ops.indexing import UPDATE

    x, *extra = xs
    zeros = _zeros_like(x)
    nodes = (zeros._node, g._node, *(e._node for e in extra))
    return record(UPDATE, nodes, params), *(None for _ in extra)


def _gather(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    from graphopt.lazy.ops.indexing import SCATTER_ADD

    x, *extra = xs
    nodes = (_zeros_like(x)._node, g._node, *(e._node for e in extra))
    return record(SCATTER_ADD, nodes, params), *(None for _ in extra)


def _take(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    from graphopt.lazy.ops.indexing import SCATTER_ADD

    x, indices = xs
    items = (*((("s", None, None, None),) * params[0]), ("a",))
    return record(SCATTER_ADD, (_zeros_like(x)._node, g._node, indices._node), (items,)), None


def _zeros_like(x: Any) -> Any:
    zero = recorder.scalar(0, x.dtype, x.device)
    return record(ARRAY["full"], (zero,), (x.shape,))


def _restored(name: str) -> Rule:
    return lambda g, xs, y, params, needs: (record(ARRAY[name], (g._node,), params),)


def _var(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    x = xs[0]
    axes, keepdims, correction = params
    count = float(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    mean = record(ARRAY["mean"], (x._node,), (axes, True))
    scale = 2.0 / max(count - correction, 0.0) if count > correction else float("inf")
    return (_expand(g, axes, keepdims, x.shape) * (x - mean) * scale,)


def _where_rule(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    return None, _where(xs[0], g, 0.0), _where(xs[0], 0.0, g)


def _astype(g: Any, xs: Any, y: Any, params: Any, needs: Any) -> tuple[Any, ...]:
    return (g,)


RULES: Final[dict[str, Rule]] = {
    "add": lambda g, xs, y, p, needs: (g, g),
    "subtract": lambda g, xs, y, p, needs: (g, -g if needs[1] else None),
    "multiply": lambda g, xs, y, p, needs: (
        g * xs[1] if needs[0] else None, g * xs[0] if needs[1] else None,
    ),
    "divide": lambda g, xs, y, p, needs: (
        g / xs[1] if needs[0] else None, -g * y / xs[1] if needs[1] else None,
    ),
    "maximum": _extremum,
    "minimum": _extremum,
    "pow": _pow,
    "negative": _unary(lambda g, x, y: -g),
    "positive": _unary(lambda g, x, y: g),
    "variable": _unary(lambda g, x, y: g),
    "abs": _unary(lambda g, x, y: g * _one("sign", x)),
    "exp": _unary(lambda g, x, y: g * y),
    "expm1": _unary(lambda g, x, y: g * (y + 1)),
    "log": _unary(lambda g, x, y: g / x),
    "log1p": _unary(lambda g, x, y: g / (x + 1)),
    "sin": _unary(lambda g, x, y: g * _one("cos", x)),
    "cos": _unary(lambda g, x, y: -g * _one("sin", x)),
    "tanh": _unary(lambda g, x, y: g * (1 - y * y)),
    "sqrt": _unary(lambda g, x, y: g * 0.5 / y),
    "rsqrt": _unary(lambda g, x, y: g * -0.5 * y / x),
    "square": _unary(lambda g, x, y: g * x * 2.0),
    "reciprocal": _unary(lambda g, x, y: -g * y * y),
    "logistic": _unary(lambda g, x, y: g * y * (1 - y)),
    "erf": _unary(lambda g, x, y: g * _one("exp", -x * x) * (2 / np.pi**0.5)),
    "sum": _sum,
    "mean": _mean,
    "max": _peak,
    "min": _peak,
    "var": _var,
    "matmul": _matmul,
    "where": _where_rule,
    "astype": _astype,
    "reshape": lambda g, xs, y, p, needs: (_reshaped(g, xs[0].shape),),
    "squeeze": lambda g, xs, y, p, needs: (_reshaped(g, xs[0].shape),),
    "permute_dims": _permute,
    "broadcast_to": lambda g, xs, y, p, needs: (g,),  # summed over the new axes afterwards
    "full": lambda g, xs, y, p, needs: (g,),
    "concat": _concat,
    "stack": _stack,
    "getitem": _getitem,
    "gather": _gather,
    "take": _take,
    "tril": _restored("tril"),
    "triu": _restored("triu"),
    "flip": _restored("flip"),
}  # fmt: skip
"""Operation -> rule for real operands; the others go through jax."""


def _vjp_jax(*values: Any) -> Any:
    """The vector-Jacobian product of an instruction; parameters: the instruction, which, which parts."""
    *arrays, forward, needs, given = values
    count = len(forward.in_avals)
    inputs, cotangents = arrays[:count], arrays[count:]
    chosen = [k for k, need in enumerate(needs) if need]

    def partial(*some: Any) -> Any:
        full = list(inputs)
        for k, x in zip(chosen, some, strict=True):
            full[k] = x
        return forward.run_jax(*full)

    outputs, pull = jax.vjp(partial, *(inputs[k] for k in chosen))
    if isinstance(outputs, (tuple, list)):
        wanted = iter(cotangents)
        parts = [
            next(wanted) if k in given else _zero_cotangent(out) for k, out in enumerate(outputs)
        ]
        return pull(type(outputs)(parts))
    return pull(cotangents[0])


def _zero_cotangent(out: Any) -> Any:
    if jnp.issubdtype(out.dtype, jnp.inexact):
        return jnp.zeros(out.shape, out.dtype)
    return np.zeros(out.shape, jax.dtypes.float0)


def _vjp_rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
    forward, needs, _ = params
    found = tuple(a for a, need in zip(forward.in_avals, needs, strict=True) if need)
    return None, tuple_aval(found, avals[0].device)


VJP: Final = Op("vjp", _vjp_jax, None, _vjp_rule)
"""The vector-Jacobian product of any operation, by jax."""


def _through_jax(
    instr: Instr, inputs: tuple[Node, ...], gradient: Any, needs: list[bool]
) -> tuple[Any, ...]:
    if isinstance(gradient, dict):
        given = tuple(sorted(gradient))
        cotangents = [gradient[k]._node for k in given]
    else:
        given, cotangents = (0,), [gradient._node]
    result = record(VJP, (*inputs, *cotangents), (instr, tuple(needs), given))
    found = iter(recorder.parts(result))
    return tuple(next(found) if need else None for need in needs)
