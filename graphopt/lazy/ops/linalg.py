"""Linear algebra operations: jax and NumPy forms with the same results for singular input (NaN)."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from graphopt.lazy.core.node import Op


def _slices(function: Any) -> Any:
    """A NumPy decomposition that gives NaN for the matrices it fails on, as XLA does."""

    def call(x: Any, *rest: Any) -> Any:
        """The decomposition; matrix by matrix where one of a batch fails."""
        try:
            return function(x, *rest)
        except np.linalg.LinAlgError:
            if x.ndim == 2:
                return _nan_like(function, x, *rest)
            parts = [call(part, *(r for r in rest)) for part in x]
            if isinstance(parts[0], tuple):
                return tuple(np.stack(column) for column in zip(*parts, strict=True))
            return np.stack(parts)

    return call


def _nan_like(function: Any, x: Any, *rest: Any) -> Any:
    eye = np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape)
    result = function(eye, *rest)
    if isinstance(result, tuple):
        return tuple(np.full_like(part, np.nan) for part in result)
    return np.full_like(result, np.nan)


def _solve_np(a: Any, b: Any) -> Any:
    try:
        if b.ndim == 1:
            return np.linalg.solve(a, b[..., None])[..., 0]
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        inverse = _slices(np.linalg.inv)(a)
        return inverse @ b


def _solve(a: Any, b: Any) -> Any:
    if b.ndim == 1:
        return jnp.linalg.solve(a, b[..., None])[..., 0]
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*shape, *a.shape[-2:]))
    return jnp.linalg.solve(a, jnp.broadcast_to(b, (*shape, *b.shape[-2:])))


def _symmetric(x: Any, np_: Any) -> Any:
    """The matrix that the lower triangle describes: NumPy reads only that one."""
    lower = np_.tril(x)
    strict = np_.swapaxes(np_.conj(np_.tril(x, -1)), -1, -2)
    return lower + strict


def _cholesky_jax(x: Any, upper: bool) -> Any:
    lower = jnp.linalg.cholesky(_symmetric(x, jnp), symmetrize_input=False)
    return jnp.conj(jnp.swapaxes(lower, -1, -2)) if upper else lower


def _cholesky_np(x: Any, upper: bool) -> Any:
    lower = _slices(np.linalg.cholesky)(x)
    return np.conj(np.swapaxes(lower, -1, -2)) if upper else lower


def _norm(np_: Any) -> Any:
    def norm(x: Any, axes: Any, keepdims: bool, order: Any) -> Any:
        """The vector norm of any order, as the array API standard has it."""
        if order == 0:
            real = np.finfo(x.dtype).dtype
            return np_.sum((x != 0).astype(real), axis=axes, keepdims=keepdims)
        magnitude = np_.abs(x)
        if order == np.inf:
            return np_.max(magnitude, axis=axes, keepdims=keepdims, initial=0)
        if order == -np.inf:
            return np_.min(magnitude, axis=axes, keepdims=keepdims)
        if order == 1:
            return np_.sum(magnitude, axis=axes, keepdims=keepdims)
        if order == 2:
            return np_.sqrt(np_.sum(magnitude * magnitude, axis=axes, keepdims=keepdims))
        power = np_.asarray(order, magnitude.dtype)
        total = np_.sum(magnitude**power, axis=axes, keepdims=keepdims)
        return total ** np_.asarray(1 / order, magnitude.dtype)

    return norm


def _rank(np_: Any) -> Any:
    def rank(x: Any, rtol: Any) -> Any:
        values = np_.linalg.svd(x, compute_uv=False)
        if rtol is None:
            rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
        largest = np_.max(values, axis=-1, keepdims=True, initial=0)
        return np_.sum(values > largest * np_.asarray(rtol, values.dtype), axis=-1).astype(np.int64)

    return rank


def _pinv(np_: Any) -> Any:
    def pinv(x: Any, rtol: Any) -> Any:
        """The pseudo-inverse by a singular value decomposition, small singular values taken as zero."""
        if rtol is None:
            rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
        u, s, vh = np_.linalg.svd(x, full_matrices=False)
        largest = np_.max(s, axis=-1, keepdims=True, initial=0)
        keep = s > largest * np_.asarray(rtol, s.dtype)
        inverse = np_.where(keep, 1 / np_.where(keep, s, np_.ones_like(s)), np_.zeros_like(s))
        scaled = np_.conj(np_.swapaxes(u, -1, -2)) * inverse[..., None].astype(x.dtype)
        return np_.matmul(np_.conj(np_.swapaxes(vh, -1, -2)), scaled)

    return pinv


def _cross(np_: Any) -> Any:
    def cross(a: Any, b: Any, axis: int) -> Any:
        a, b = np_.moveaxis(a, axis, -1), np_.moveaxis(b, axis, -1)
        x, y, z = (a[..., k] for k in range(3))
        u, v, w = (b[..., k] for k in range(3))
        parts = [y * w - z * v, z * u - x * w, x * v - y * u]
        return np_.moveaxis(np_.stack(parts, axis=-1), -1, axis)

    return cross


def _trace(np_: Any) -> Any:
    return lambda x, offset, dtype: np_.sum(
        np_.diagonal(x, offset=offset, axis1=-2, axis2=-1), axis=-1, dtype=dtype
    )


def _both(name: str, make: Any) -> Op:
    return Op(name, make(jnp), make(np))


def _plain(name: str, *fixed: Any, **options: Any) -> Op:
    jax_form, np_form = getattr(jnp.linalg, name), getattr(np.linalg, name)
    return Op(
        name,
        lambda x: _as_tuple(jax_form(x, *fixed, **options)),
        _slices(lambda x: _as_tuple(np_form(x, *fixed, **options))),
    )


def _as_tuple(result: Any) -> Any:
    return tuple(result) if isinstance(result, tuple) else result


def _eigh_jax(x: Any) -> Any:
    return tuple(jnp.linalg.eigh(_symmetric(x, jnp), symmetrize_input=False))


def _eig(name: str) -> Op:
    """General eigenvalues: LAPACK has them for the host alone, so jax calls NumPy back elsewhere."""
    jax_form, np_form = getattr(jnp.linalg, name), getattr(np.linalg, name)

    def on_numpy(x: Any) -> Any:
        kind = np.result_type(x.dtype, np.complex64)
        found = _as_tuple(np_form(x))
        if isinstance(found, tuple):
            return tuple(part.astype(kind) for part in found)
        return found.astype(kind)

    return Op(name, lambda x: _as_tuple(jax_form(x)), _slices(on_numpy))


OPS: Final[dict[str, Op]] = {
    op.name: op
    for op in (
        Op("cholesky", _cholesky_jax, _cholesky_np),
        Op("solve", _solve, _solve_np),
        Op("eigh", _eigh_jax, _slices(lambda x: tuple(np.linalg.eigh(x)))),
        Op("eigvalsh", lambda x: _eigh_jax(x)[0], _slices(np.linalg.eigvalsh)),
        _plain("det"),
        _plain("inv"),
        _plain("slogdet"),
        _eig("eig"),
        _eig("eigvals"),
        Op(
            "qr",
            lambda x, mode: tuple(jnp.linalg.qr(x, mode=mode)),
            lambda x, mode: tuple(np.linalg.qr(x, mode=mode)),
        ),
        Op(
            "svd",
            lambda x, full: tuple(jnp.linalg.svd(x, full_matrices=full)),
            _slices(lambda x, full: tuple(np.linalg.svd(x, full_matrices=full))),
        ),
        Op(
            "svdvals",
            lambda x: jnp.linalg.svd(x, compute_uv=False),
            _slices(lambda x: np.linalg.svd(x, compute_uv=False)),
        ),
        _both("vector_norm", _norm),
        _both("matrix_rank", _rank),
        _both("pinv", _pinv),
        _both("cross", _cross),
        _both("trace", _trace),
    )
}
"""Linear algebra operations by name."""
