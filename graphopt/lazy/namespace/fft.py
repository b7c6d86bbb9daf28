"""Fourier transforms (array API standard, extension ``fft``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.namespace import creation, manipulation
from graphopt.lazy.record import operands
from graphopt.lazy.record.recorder import record

__all__ = """fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift
    ifftshift""".split()


def _one(name: str, np_: Any) -> Any:
    return lambda x, n, axis, norm: getattr(np_.fft, name)(x, n=n, axis=axis, norm=norm)


def _many(name: str, np_: Any) -> Any:
    return lambda x, s, axes, norm: getattr(np_.fft, name)(x, s=s, axes=axes, norm=norm)


def _axis_by_axis(name: str) -> Any:
    """A transform over several axes as jax computes at most three: one axis after the other."""
    single = {"fftn": "fft", "ifftn": "ifft", "rfftn": "fft", "irfftn": "ifft"}[name]

    def transform(x: Any, s: Any, axes: Any, norm: str) -> Any:
        """`x` transformed over `axes`, cut or padded to the lengths `s` first; None keeps them."""
        lengths = [x.shape[a] for a in axes] if s is None else list(s)
        if name == "irfftn" and s is None:
            lengths[-1] = 2 * (lengths[-1] - 1)
        *rest, last = range(len(axes))
        if name == "rfftn":
            x = jnp.fft.rfft(x, n=lengths[last], axis=axes[last], norm=norm)
        for k in rest if name.startswith(("rf", "irf")) else range(len(axes)):
            x = getattr(jnp.fft, single)(x, n=lengths[k], axis=axes[k], norm=norm)
        if name == "irfftn":
            x = jnp.fft.irfft(x, n=lengths[last], axis=axes[last], norm=norm)
        return x

    return transform


_OPS: Final[dict[str, Op]] = {
    **{n: Op(n, _one(n, jnp), _one(n, np)) for n in "fft ifft rfft irfft hfft ihfft".split()},
    **{n: Op(n, _axis_by_axis(n), _many(n, np)) for n in "fftn ifftn rfftn irfftn".split()},
}


def _fail(what: str, fix: str, kind: Any = LazyValueError) -> Exception:
    return kind(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)  # type: ignore[no-any-return]


def _operand(x: Any, name: str, real: bool) -> Node:
    node = operands.node_of(x, name)
    dtype = node.aval.dtype
    if not dtype.is_float:
        node, dtype = operands.cast(node, dtypes.DEFAULT_FLOAT), dtypes.DEFAULT_FLOAT
    if real and dtype.kind == "complex":
        raise _fail(f"{name} of complex numbers", "Use the complex transform.", LazyTypeError)
    if not real and dtype.kind != "complex":
        node = operands.cast(node, dtypes._complex_of(dtype))
    return node


def _norm(norm: str, name: str) -> str:
    if norm not in ("backward", "ortho", "forward"):
        raise _fail(f"{name} with norm={norm!r}", "Use backward, ortho or forward.")
    return norm


def _single(name: str, x: Any, n: int | None, axis: int, norm: str, real: bool = False) -> Any:
    node = _operand(x, name, real)
    position = operands.axis_of(axis, len(node.aval.shape), name)
    if n is not None and n < 1:
        raise _fail(f"{name} of {n} points", "Give one or more.")
    return record(_OPS[name], (node,), (n, position, _norm(norm, name)))


def _several(name: str, x: Any, s: Any, axes: Any, norm: str, real: bool = False) -> Any:
    node = _operand(x, name, real)
    ndim = len(node.aval.shape)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    found = operands.axes_of(tuple(axes), ndim, name)
    if s is not None and len(s) != len(found):
        raise _fail(f"{name} with s={tuple(s)} for axes {found}", "Give one length per axis.")
    lengths = None
    if s is not None:
        whole = node.aval.shape
        lengths = tuple(int(n) if n != -1 else whole[a] for n, a in zip(s, found, strict=True))
    return record(_OPS[name], (node,), (lengths, found, _norm(norm, name)))


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Discrete Fourier transform along an axis."""
    return _single("fft", x, n, axis, norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Inverse of `fft`."""
    return _single("ifft", x, n, axis, norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Transform of real numbers: the non-negative frequencies."""
    return _single("rfft", x, n, axis, norm, real=True)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Inverse of `rfft`."""
    return _single("irfft", x, n, axis, norm)


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Transform of a signal with Hermitian symmetry, to real numbers."""
    return _single("hfft", x, n, axis, norm)


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Inverse of `hfft`."""
    return _single("ihfft", x, n, axis, norm, real=True)


def fftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Any:  # fmt: skip
    """Transform along several axes (default: all)."""
    return _several("fftn", x, s, axes, norm)


def ifftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Any:  # fmt: skip
    """Inverse of `fftn`."""
    return _several("ifftn", x, s, axes, norm)


def rfftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Any:  # fmt: skip
    """Transform of real numbers along several axes, the last one reduced."""
    return _several("rfftn", x, s, axes, norm, real=True)


def irfftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Any:  # fmt: skip
    """Inverse of `rfftn`."""
    return _several("irfftn", x, s, axes, norm)


def _freq(values: Any, dtype: Any, device: Any, name: str) -> Any:
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else dtypes.as_dtype(dtype)
    if wanted.kind != "float":
        raise _fail(f"{name} of dtype {wanted}", "Use a real dtype.", LazyTypeError)
    return creation._leaf(values.astype(wanted.np), device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Frequencies of `fft` of n points at distance d."""
    return _freq(np.fft.fftfreq(n, d), dtype, device, "fftfreq")


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Frequencies of `rfft` of n points at distance d."""
    return _freq(np.fft.rfftfreq(n, d), dtype, device, "rfftfreq")


def _shift(x: Any, axes: Any, name: str, inverse: bool) -> Any:
    node = operands.node_of(x, name)
    found = operands.axes_of(axes, len(node.aval.shape), name)
    lengths = [node.aval.shape[a] for a in found]
    by = tuple(-(n // 2) if inverse else n // 2 for n in lengths)
    return manipulation.roll(x, by, axis=found) if found else x


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Zero frequency moved to the middle."""
    return _shift(x, axes, "fftshift", inverse=False)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Inverse of `fftshift`."""
    return _shift(x, axes, "ifftshift", inverse=True)
