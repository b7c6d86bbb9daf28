"""The methods of NumPy's arrays that read; each is a function of `graphopt.lazy`.

The array API standard has functions only. Programs that were written for NumPy or jax call methods, and so do
The array API standard has functions only. Programs written for NumPy or jax call methods, and so do
``fill``) are missing: of a value they would silently do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.dtypes import REAL_OF, DType, as_dtype
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import recorder
from graphopt.lazy.record.recorder import record
from graphopt.lazy.record.tensor_base import TensorBase

Axes = int | Sequence[int] | None


def _lazy(out: Any = None) -> Any:
    """The namespace, which is above this package.

    Raises:
        LazyTypeError: an array to write to is given.
    """
    if out is not None:
        raise LazyTypeError(
            what="out=: tensors are values",
            where=source_lines.line_of(source_lines.here()),
            fix="Use the result.",
        )
    return import_module("graphopt.lazy")


class ArrayMethods(TensorBase):
    """What `Tensor` has beyond the standard's array object; arguments and results are NumPy's."""

    __slots__ = ()

    # Reductions. Axes: all if None; results keep reduced axes, of length 1, if told to.

    def sum(
        self, axis: Axes = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Sum; small integers are added up as 64-bit ones."""
        return _lazy(out).sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(
        self, axis: Axes = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Product; small integers are multiplied as 64-bit ones."""
        return _lazy(out).prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(
        self, axis: Axes = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Arithmetic mean."""
        return _lazy(out).mean(_as(self, dtype), axis=axis, keepdims=keepdims)

    def var(
        self,
        axis: Axes = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Variance, divided by the number of elements less `ddof`."""
        return _lazy(out).var(_as(self, dtype), axis=axis, correction=ddof, keepdims=keepdims)

    def std(
        self,
        axis: Axes = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Square root of `var`."""
        return _lazy(out).std(_as(self, dtype), axis=axis, correction=ddof, keepdims=keepdims)

    def max(self, axis: Axes = None, out: None = None, keepdims: bool = False) -> Any:
        """Largest element; NaN if there is one."""
        return _lazy(out).max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axes = None, out: None = None, keepdims: bool = False) -> Any:
        """Smallest element; NaN if there is one."""
        return _lazy(out).min(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axes = None, out: None = None, keepdims: bool = False) -> Any:
        """Whether all elements are true."""
        return _lazy(out).all(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axes = None, out: None = None, keepdims: bool = False) -> Any:
        """Whether some element is true."""
        return _lazy(out).any(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """Place of the first largest element, of all in order if `axis` is None."""
        return _lazy(out).argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """Place of the first smallest element, of all in order if `axis` is None."""
        return _lazy(out).argmin(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        """Sums of the elements so far, of all in order if `axis` is None."""
        return _lazy(out).cumulative_sum(_flat_unless(self, axis), axis=axis, dtype=dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        """Products of the elements so far, of all in order if `axis` is None."""
        return _lazy(out).cumulative_prod(_flat_unless(self, axis), axis=axis, dtype=dtype)

    # Shapes.

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """The same elements in another shape, given as one argument or several.

        Raises:
            LazyValueError: another order than "C", or a shape that does not fit.
        """
        _in_c_order(order)
        lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return _lazy().reshape(self, tuple(lengths), copy=copy)

    def ravel(self, order: str = "C") -> Any:
        """All elements along one axis."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Any:
        """All elements along one axis."""
        return self.reshape(-1, order=order)

    def squeeze(self, axis: Axes = None) -> Any:
        """Without axes of length 1: those named, or all."""
        if axis is None:
            axis = tuple(a for a, length in enumerate(self._node.aval.shape) if length == 1)
        return _lazy().squeeze(self, axis)

    def transpose(self, *axes: Any) -> Any:
        """Axes in another order, given as one argument or several; reversed if none is given."""
        if not axes or axes == (None,):
            axes = tuple(reversed(range(len(self._node.aval.shape))))
        elif len(axes) == 1 and isinstance(axes[0], Sequence):
            axes = tuple(axes[0])
        return _lazy().permute_dims(self, axes)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Two axes exchanged."""
        ndim = len(self._node.aval.shape)
        order = list(range(ndim))
        try:
            order[axis1], order[axis2] = order[axis2], order[axis1]
        except IndexError:
            raise LazyValueError(
                what=f"swapaxes: axes {axis1} and {axis2} of a tensor with {ndim}",
                where=source_lines.line_of(source_lines.here()),
                fix=f"Name axes from {-ndim} to {ndim - 1}.",
            ) from None
        return _lazy().permute_dims(self, tuple(order))

    def repeat(self, repeats: Any, axis: int | None = None) -> Any:
        """Each element so many times, along one axis if `axis` is None."""
        return _lazy().repeat(self, repeats, axis=axis)

    # Elements.

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Elements of another type."""
        return _lazy().astype(self, dtype, copy=copy)

    def view(self, dtype: Any) -> Any:
        """The same bytes as elements of another type; the last axis grows or shrinks with their size.

        ``float`` and ``complex`` mean those of the precision at hand.

        Raises:
            LazyValueError: the last axis holds no whole number of such elements.
        """
        aval = self._node.aval
        wanted = _like(aval.dtype, dtype)
        if wanted is aval.dtype:
            return self.copy()
        size = aval.dtype.itemsize
        if size != wanted.itemsize and (not aval.shape or aval.shape[-1] * size % wanted.itemsize):
            raise LazyValueError(
                what=f"{aval!r} as {wanted}: its last axis holds no whole number of them",
                where=source_lines.line_of(source_lines.here()),
                fix="Use astype to convert values.",
            )
        return record(OPS["view"], (self._node,), (wanted.np,))

    def copy(self) -> Any:
        """The same value: no write through another name reaches it."""
        return recorder.hold(self._node)

    def clip(self, min: Any = None, max: Any = None, out: None = None) -> Any:
        """Elements within bounds."""
        return _lazy(out).clip(self, min, max)

    def round(self, decimals: int = 0, out: None = None) -> Any:
        """Elements rounded to so many decimals, halves to even.

        Raises:
            LazyValueError: decimals of whole numbers below zero.
        """
        lazy, is_float = _lazy(out), self._node.aval.dtype.is_float
        if decimals == 0 or (decimals > 0 and not is_float):
            return lazy.round(self)
        if not is_float:
            raise LazyValueError(
                what=f"round: whole numbers to {decimals} decimals",
                where=source_lines.line_of(source_lines.here()),
                fix="Convert them with astype first.",
            )
        scale = 10.0 ** abs(decimals)
        if decimals < 0:
            return lazy.round(self / scale) * scale  # type: ignore[operator]
        return lazy.round(self * scale) / scale  # type: ignore[operator]

    def conj(self) -> Any:
        """Complex conjugates."""
        return _lazy().conj(self)

    conjugate = conj

    @property
    def real(self) -> Any:
        """Real parts."""
        return _lazy().real(self)

    @property
    def imag(self) -> Any:
        """Imaginary parts."""
        lazy = _lazy()
        return lazy.imag(self) if self._node.aval.dtype.kind == "complex" else lazy.zeros_like(self)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """Elements at places along an axis, of all in order if `axis` is None."""
        return _lazy().take(_flat_unless(self, axis), indices, axis=axis or 0)

    def argsort(self, axis: int = -1, *, stable: bool = True, descending: bool = False) -> Any:
        """Places of the elements in rising order."""
        return _lazy().argsort(self, axis=axis, stable=stable, descending=descending)

    def nonzero(self) -> tuple[Any, ...]:
        """Places of elements that are not zero, an array per axis; observes the value."""
        found: tuple[Any, ...] = _lazy().nonzero(self)
        return found

    def dot(self, other: Any) -> Any:
        """Product over the last axis and the last but one of `other`, or its only one."""
        lazy = _lazy()
        other = lazy.asarray(other)
        if not self._node.aval.shape or not other.ndim:
            return lazy.multiply(self, other)
        return lazy.tensordot(self, other, axes=((-1,), (-min(other.ndim, 2),)))


def _like(own: DType, wanted: Any) -> DType:
    """A dtype, Python's ``float`` and ``complex`` of the precision of another."""
    if wanted is complex and own.is_float:
        return next(
            (pair for pair, real in REAL_OF.items() if own in (pair, real)), as_dtype(wanted)
        )
    if wanted is float and own.is_float:
        return REAL_OF.get(own, own)
    return as_dtype(wanted)


def _as(x: ArrayMethods, dtype: Any) -> ArrayMethods:
    converted: ArrayMethods = x if dtype is None else x.astype(dtype)
    return converted


def _flat_unless(x: ArrayMethods, axis: int | None) -> ArrayMethods:
    flat: ArrayMethods = x.reshape(-1) if axis is None else x
    return flat


def _in_c_order(order: str) -> None:
    if order not in ("C", "A", "K"):
        raise LazyValueError(
            what=f"elements in order {order!r}",
            where=source_lines.line_of(source_lines.here()),
            fix='Transpose first; tensors have the order "C".',
        )
