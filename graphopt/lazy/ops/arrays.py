"""Operations that are not elementwise: reductions, manipulation, sorting, creation, products.

Each has a jax form and, where NumPy has the same, a NumPy form; parameters follow the arrays.
"""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.lazy.core import dtypes
from graphopt.lazy.core.infer import broadcast, refuse_dtypes, struct
from graphopt.lazy.core.node import Aval, Op, aval_of


def promoting_rule(name: str, function: Any) -> Any:
    """Rule of an operation whose operands are promoted to one dtype first."""

    def rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[Any, Aval]:
        """The dtype that all operands are promoted to, and the result."""
        import jax

        dtype = dtypes.promote(a.dtype for a in avals)
        if name in ("matmul", "tensordot", "vecdot") and dtype.kind == "bool":
            raise refuse_dtypes(name, avals, "numeric")
        device = avals[0].device
        cast = [struct(aval_of(a.shape, dtype, device)) for a in avals]
        with jax.enable_x64(True):
            out = jax.eval_shape(lambda *xs: function(*xs, *params), *cast)
        return dtype, aval_of(tuple(out.shape), dtypes.from_numpy(out.dtype), device)

    return rule


def _shape_rule(shape_of: Any) -> Any:
    def rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
        return None, aval_of(shape_of(avals[0].shape, *params), avals[0].dtype, avals[0].device)

    return rule


def _reduced(dtype_of: Any) -> Any:
    """Rule of a reduction with parameters (axes, keepdims, ...)."""

    def rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
        axes, keepdims = params[0], params[1]
        shape = avals[0].shape
        if keepdims:
            out = tuple(1 if k in axes else n for k, n in enumerate(shape))
        else:
            out = tuple(n for k, n in enumerate(shape) if k not in axes)
        return None, aval_of(out, dtype_of(avals[0].dtype, params), avals[0].device)

    return rule


def _same(dtype: Any, params: Any) -> Any:
    return dtype


def _given(dtype: Any, params: Any) -> Any:
    return dtypes.from_numpy(params[2])


def _boolean(dtype: Any, params: Any) -> Any:
    return dtypes.bool_


def _real(dtype: Any, params: Any) -> Any:
    return dtypes.REAL_OF.get(dtype, dtype)


def _index(dtype: Any, params: Any) -> Any:
    return dtypes.DEFAULT_INDEX


def _sum(x: Any, axes: Any, keepdims: bool, dtype: Any) -> Any:
    return jnp.sum(x, axis=axes, keepdims=keepdims, dtype=dtype)


def _prod(x: Any, axes: Any, keepdims: bool, dtype: Any) -> Any:
    return jnp.prod(x, axis=axes, keepdims=keepdims, dtype=dtype)


def _mean_np(x: Any, axes: Any, keepdims: bool) -> Any:
    """NumPy's mean without its warning for no elements, which give NaN."""
    count = int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    total = x.sum(axis=axes, keepdims=keepdims, dtype=wide)
    return np.divide(total, np.asarray(count, total.real.dtype)).astype(x.dtype)


def _mean(x: Any, axes: Any, keepdims: bool) -> Any:
    return jnp.mean(x, axis=axes, keepdims=keepdims)


def _var(np_: Any) -> Any:
    def var(x: Any, axes: Any, keepdims: bool, correction: float) -> Any:
        """Two passes, in the operand's precision; n <= correction gives NaN or infinity."""
        count = int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
        mean = (_mean_np if np_ is np else _mean)(x, axes, True)
        total = np_.sum(np_.square(np_.abs(x - mean)), axis=axes, keepdims=keepdims)
        divisor = np.asarray(max(count - correction, 0.0), total.dtype)
        return np_.divide(total, divisor)

    return var


def _arg(function: Any, np_: Any) -> Any:
    def arg(x: Any, axes: Any, keepdims: bool) -> Any:
        if len(axes) == x.ndim and x.ndim != 1:
            flat = function(np_.reshape(x, (-1,)), axis=0)
            return np_.reshape(flat, (1,) * x.ndim if keepdims else ()).astype(np.int64)
        return np_.asarray(function(x, axis=axes[0], keepdims=keepdims)).astype(np.int64)

    return arg


def _count(np_: Any) -> Any:
    def count(x: Any, axes: Any, keepdims: bool) -> Any:
        return np_.sum(x != 0, axis=axes, keepdims=keepdims, dtype=np.int64)

    return count


def _cumulative(np_: Any, name: str) -> Any:
    def cumulative(x: Any, axis: int, dtype: Any, include_initial: bool) -> Any:
        result = getattr(np_, name)(x.astype(dtype), axis=axis, dtype=dtype)
        if include_initial:
            shape = list(x.shape)
            shape[axis] = 1
            first = np_.full(tuple(shape), 0 if name == "cumsum" else 1, dtype)
            result = np_.concatenate([first, result], axis=axis)
        return result

    return cumulative


def _argsort(np_: Any) -> Any:
    def argsort(x: Any, axis: int, descending: bool) -> Any:
        # Stable both ways: a descending order is the reversed order of the reversed array.
        if descending:
            flipped = np_.argsort(np_.flip(x, axis), axis=axis, stable=True)
            return (x.shape[axis] - 1 - np_.flip(flipped, axis)).astype(np.int64)
        return np_.argsort(x, axis=axis, stable=True).astype(np.int64)

    return argsort


def _sort(np_: Any) -> Any:
    def sort(x: Any, axis: int, descending: bool) -> Any:
        result = np_.sort(x, axis=axis)
        return np_.flip(result, axis) if descending else result

    return sort


def _searchsorted(np_: Any) -> Any:
    def searchsorted(x1: Any, x2: Any, side: str) -> Any:
        return np_.asarray(np_.searchsorted(x1, x2, side=side)).astype(np.int64)

    return searchsorted


def _matmul_np(a: Any, b: Any) -> Any:
    return np.matmul(a, b)


def _vecdot(np_: Any) -> Any:
    def vecdot(a: Any, b: Any, axis: int) -> Any:
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = np_.broadcast_to(a, shape), np_.broadcast_to(b, shape)
        return np_.sum(np_.conj(a) * b, axis=axis, dtype=a.dtype)

    return vecdot


def _where_rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
    shape = broadcast("where", tuple(a.shape for a in avals))
    return None, aval_of(shape, avals[1].dtype, avals[0].device)


def _astype_np(x: Any, dtype: Any) -> Any:
    if x.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        # Out-of-range values saturate and NaN becomes 0, as in XLA.
        info = np.iinfo(dtype)
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        low, high = wide <= float(info.min), wide >= float(info.max)
        safe = np.where(low | high, 0.0, wide).astype(dtype)
        return np.where(low, info.min, np.where(high, info.max, safe)).astype(dtype)
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        return _astype_np(x.real, dtype)
    return x.astype(dtype)


def _astype(x: Any, dtype: Any) -> Any:
    if np.dtype(x.dtype).kind == "c" and np.dtype(dtype).kind not in "cb":
        x = x.real
    return (x != 0) if np.dtype(dtype).kind == "b" else x.astype(dtype)


def _astype_rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
    return None, aval_of(avals[0].shape, dtypes.from_numpy(params[0]), avals[0].device)


def _padded(np_: Any) -> Any:
    def pad(x: Any, widths: Any, mode: str, value: Any) -> Any:
        more = {"constant_values": value} if mode == "constant" else {}
        return np_.pad(x, widths, mode, **more)

    return pad


def _diagonal(np_: Any) -> Any:
    return lambda x, offset: np_.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def _repeat(np_: Any) -> Any:
    return lambda x, count, axis: np_.repeat(x, count, axis=axis)


def _roll(np_: Any) -> Any:
    return lambda x, shift, axes: np_.roll(x, shift, axis=axes)


def _joined(np_: Any, name: str) -> Any:
    def join(*values: Any) -> Any:
        *arrays, axis = values
        return getattr(np_, name)(arrays, axis=axis)

    return join


def _full(np_: Any) -> Any:
    return lambda value, shape: np_.broadcast_to(value, shape)


def _squeeze_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def _tri(np_: Any, upper: bool) -> Any:
    def tri(x: Any, k: int) -> Any:
        return (np_.triu if upper else np_.tril)(x, k)

    return tri


def _squeeze(np_: Any) -> Any:
    return lambda x, axes: np_.squeeze(x, axis=axes)


def _take_along(np_: Any) -> Any:
    return lambda x, indices, axis: np_.take_along_axis(x, indices, axis=axis)


def _tensordot(np_: Any) -> Any:
    return lambda a, b, axes: np_.tensordot(a, b, axes=axes)


def _eye(np_: Any) -> Any:
    return lambda rows, columns, k, dtype: np_.eye(rows, columns, k, dtype=dtype)


def _iota(np_: Any) -> Any:
    return lambda count, dtype: np_.arange(count, dtype=dtype)


def _row(name: str, make: Any, rule: Any = None, has_index: bool = False) -> Op:
    """An operation whose two forms come from one maker, given `jax.numpy` or `numpy`."""
    return Op(name, make(jnp), make(np), rule, has_index)


def _keyword(name: str) -> Any:
    return lambda np_: lambda x, axes, keepdims: getattr(np_, name)(x, axis=axes, keepdims=keepdims)


_ROWS: Final[tuple[Op, ...]] = (
    Op("sum", _sum, lambda x, a, k, d: np.sum(x, axis=a, keepdims=k, dtype=d), _reduced(_given)),
    Op("prod", _prod, lambda x, a, k, d: np.prod(x, axis=a, keepdims=k, dtype=d), _reduced(_given)),
    _row("max", _keyword("max"), _reduced(_same)),
    _row("min", _keyword("min"), _reduced(_same)),
    Op("mean", _mean, _mean_np, _reduced(_same)),
    _row("any", _keyword("any"), _reduced(_boolean)),
    _row("all", _keyword("all"), _reduced(_boolean)),
    _row("var", _var, _reduced(_real)),
    Op("argmax", _arg(jnp.argmax, jnp), _arg(np.argmax, np), _reduced(_index)),
    Op("argmin", _arg(jnp.argmin, jnp), _arg(np.argmin, np), _reduced(_index)),
    _row("count_nonzero", _count, _reduced(_index)),
    _row("cumulative_sum", lambda np_: _cumulative(np_, "cumsum")),
    _row("cumulative_prod", lambda np_: _cumulative(np_, "cumprod")),
    _row("sort", _sort, _shape_rule(lambda shape, axis, descending: shape)),
    _row("argsort", _argsort),
    _row("searchsorted", _searchsorted),
    Op("matmul", jnp.matmul, _matmul_np, promoting_rule("matmul", jnp.matmul)),
    Op(
        "tensordot", _tensordot(jnp), _tensordot(np),
        promoting_rule("tensordot", _tensordot(jnp)),
    ),
    Op("vecdot", _vecdot(jnp), _vecdot(np), promoting_rule("vecdot", _vecdot(jnp))),
    Op("where", jnp.where, np.where, _where_rule),
    Op("astype", _astype, _astype_np, _astype_rule),
    Op("view", lambda x, dtype: x.view(dtype), lambda x, dtype: np.asarray(x, order="C").view(dtype)),
    Op(
        "reshape", lambda x, shape: x.reshape(shape), lambda x, shape: x.reshape(shape),
        _shape_rule(lambda old, shape: shape),
    ),
    _row(
        "permute_dims", lambda np_: np_.transpose,
        _shape_rule(lambda shape, axes: tuple(shape[a] for a in axes)),
    ),
    _row("broadcast_to", lambda np_: np_.broadcast_to, _shape_rule(lambda old, shape: shape)),
    _row("concat", lambda np_: _joined(np_, "concatenate")),
    _row("stack", lambda np_: _joined(np_, "stack")),
    _row("squeeze", _squeeze, _shape_rule(_squeeze_shape)),
    _row("flip", lambda np_: np_.flip, _shape_rule(lambda shape, axes: shape)),
    _row("roll", _roll, _shape_rule(lambda shape, shift, axes: shape)),
    _row("tile", lambda np_: np_.tile),
    _row("pad", _padded),
    _row("repeat", _repeat),
    _row("tril", lambda np_: _tri(np_, False), _shape_rule(lambda shape, k: shape)),
    _row("triu", lambda np_: _tri(np_, True), _shape_rule(lambda shape, k: shape)),
    _row("diagonal", _diagonal),
    _row("take_along_axis", _take_along, has_index=True),
    _row("full", _full, _shape_rule(lambda old, shape: shape)),
    _row("eye", _eye),
    _row("iota", _iota),
    Op("variable", lambda x: x, lambda x: x, _shape_rule(lambda shape: shape)),
    Op("stop_gradient", lax.stop_gradient, lambda x: x, _shape_rule(lambda shape: shape)),
    Op("einsum", lambda *v: jnp.einsum(v[-1], *v[:-1]), lambda *v: np.einsum(v[-1], *v[:-1])),
)  # fmt: skip

OPS: Final[dict[str, Op]] = {op.name: op for op in _ROWS}
"""Non-elementwise operations by name."""
