"""`Tensor`: an array whose operations are recorded and run when a value is observed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import jax
import numpy as np

from graphopt.lazy.array import indexing
from graphopt.lazy.array.methods import ArrayMethods
from graphopt.lazy.array.operators import operator
from graphopt.lazy.array.powers import constant_power
from graphopt.lazy.core import source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.errors import LazyBufferError, LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS as ARRAY
from graphopt.lazy.ops.elementwise import OPS
from graphopt.lazy.record import recorder
from graphopt.lazy.record.recorder import record, record1
from graphopt.lazy.runtime import cut


class Tensor(ArrayMethods):
    """An n-dimensional array of the array API standard with value semantics.

    Operations on tensors return at once; they run when a value is observed (``print``, ``float``,
    ``bool``, ``numpy`` ...) or at `lt.sync` and `lt.eval`. Two tensors never share memory that a write
    could show: ``x[i] = v`` gives this tensor object a new value, and in-place operators bind the
    name to a new tensor.

    Raises:
        LazyTypeError: the class is called; tensors are made with `lt.asarray` and its like.
    """

    __slots__ = ()
    __array_priority__ = 1000  # makes numpy_array + tensor call __radd__

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise LazyTypeError(
            what="Tensor is not made by calling it", where="Tensor", fix="Use lt.asarray."
        )

    # Attributes: none of them runs anything.

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis lengths."""
        return self._node.aval.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._node.aval.dtype

    @property
    def device(self) -> Any:
        """The jax device that holds the value."""
        return self._node.aval.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._node.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._node.aval.size

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return self._node.aval.nbytes

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def T(self) -> Tensor:
        """The transpose of a matrix.

        Raises:
            LazyValueError: not two axes.
        """
        if self.ndim != 2:
            raise LazyValueError(
                what=f".T of a tensor with {self.ndim} axes",
                where=source_lines.line_of(source_lines.here()),
                fix="Use .mT or lt.permute_dims.",
            )
        return self.mT

    @property
    def mT(self) -> Tensor:
        """The transpose of the last two axes.

        Raises:
            LazyValueError: fewer than two axes.
        """
        ndim = self.ndim
        if ndim < 2:
            raise LazyValueError(
                what=f".mT of a tensor with {ndim} axes",
                where=source_lines.line_of(source_lines.here()),
                fix="Give it two axes or more.",
            )
        axes = (*range(ndim - 2), ndim - 1, ndim - 2)
        result: Tensor = record(ARRAY["permute_dims"], (self._node,), (axes,))
        return result

    @property
    def pending(self) -> bool:
        """Whether the value is still to be computed."""
        return self._node.data is None

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise LazyValueError(
                what=f"array API version {api_version!r}",
                where=source_lines.line_of(source_lines.here()),
                fix="Ask for 2025.12 or earlier.",
            )
        return import_module("graphopt.lazy")  # the namespace holds tensors

    # Observations.

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array; read-only, because it may share the tensor's memory."""
        return cut.host(self._node, "numpy")

    def item(self) -> Any:
        """The only element as a Python number.

        Raises:
            LazyValueError: not exactly one element.
        """
        return self._single("item").item()

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers."""
        return cut.host(self._node, "tolist").tolist()

    def block_until_ready(self) -> Tensor:
        """Computes the value and waits for it; returns the tensor."""
        cut.eval_nodes([self._node], wait=True)
        return self

    def _single(self, cause: str) -> np.ndarray[Any, Any]:
        if self._node.aval.size != 1:
            raise LazyValueError(
                what=f"{cause} of a tensor with {self.size} elements",
                where=source_lines.line_of(source_lines.here()),
                fix="Reduce it to one element first, with lt.any, lt.all or lt.sum.",
            )
        return cut.host(self._node, cause).reshape(())

    def _number(self, cause: str) -> np.ndarray[Any, Any]:
        if cause != "complex" and self._node.aval.dtype.kind == "complex":
            raise LazyTypeError(
                what=f"{cause} of a complex tensor",
                where=source_lines.line_of(source_lines.here()),
                fix="Take lt.real or lt.abs first.",
            )
        return self._single(cause)

    def __bool__(self) -> bool:
        return bool(self._single("bool"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._single("complex"))

    def __index__(self) -> int:
        if self._node.aval.dtype.kind not in ("signed", "unsigned") or self.ndim != 0:
            raise LazyTypeError(
                what=f"a tensor {self._node.aval!r} as an index",
                where=source_lines.line_of(source_lines.here()),
                fix="Use an integer tensor without axes.",
            )
        return int(cut.host(self._node, "index"))

    def __len__(self) -> int:
        shape = self._node.aval.shape
        if not shape:
            raise LazyTypeError(
                what="len() of a tensor without axes",
                where=source_lines.line_of(source_lines.here()),
                fix="Use x.size.",
            )
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __contains__(self, value: object) -> bool:
        return bool(
            record(ARRAY["any"], ((self == value)._node,), (tuple(range(self.ndim)), False))
        )

    def __repr__(self) -> str:
        if isinstance(self._node.data, jax.core.Tracer):
            return f"Tensor({self._node.aval!r}, traced)"
        try:
            text = np.array2string(cut.host(self._node, "print"), separator=", ", prefix="Tensor(")
        except Exception as error:  # a display must never raise
            return f"Tensor({self._node.aval!r}, {type(error).__name__}: {error})"
        return f"Tensor({text}, dtype={self.dtype.name})"

    def __str__(self) -> str:
        if isinstance(self._node.data, jax.core.Tracer):
            return repr(self)
        return str(cut.host(self._node, "print"))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(self._single("format").item(), spec)

    # Exchange with others.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = cut.host(self._node, "numpy")
        wanted = array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and wanted != array.dtype:
            raise LazyValueError(
                what=f"{array.dtype} as {wanted} without a copy",
                where=source_lines.line_of(source_lines.here()),
                fix="Leave out copy=False.",
            )
        return array.astype(wanted) if copy or wanted != array.dtype else array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from graphopt.lazy.array.interop import to_dlpack

        return to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[Any, int]:
        from graphopt.lazy.array.interop import dlpack_device

        return dlpack_device(self)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """A copy on another device, or the tensor itself if it is there already.

        Raises:
            LazyValueError: no such device.
        """
        from graphopt.lazy.array.interop import to_device

        if stream is not None:
            raise LazyBufferError(
                what="streams are not supported",
                where=source_lines.line_of(source_lines.here()),
                fix="Leave out stream.",
            )
        moved: Tensor = to_device(self, device)
        return moved

    def __reduce__(self) -> Any:
        from graphopt.lazy.array.interop import restore

        return restore, (np.array(cut.host(self._node, "pickle")),)

    def __copy__(self) -> Tensor:
        found: Tensor = recorder.hold(self._node)
        return found

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.__copy__()  # the value is immutable

    # Indexing.

    def __getitem__(self, key: Any, /) -> Tensor:
        found: Tensor = indexing.getitem(self, key)
        return found

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._node = indexing.setitem(self, key, value)._node
        if self._node.data is None:
            recorder.note(self)

    @property
    def at(self) -> Any:
        """``x.at[i].set(v)`` and ``x.at[i].add(v)``: like assignment, as a new tensor."""
        return indexing.At(self)

    # Operators.

    def __abs__(self) -> Tensor:
        return record1(OPS["abs"], self._node)  # type: ignore[no-any-return]

    def __neg__(self) -> Tensor:
        return record1(OPS["negative"], self._node)  # type: ignore[no-any-return]

    def __pos__(self) -> Tensor:
        return record1(OPS["positive"], self._node)  # type: ignore[no-any-return]

    def __invert__(self) -> Tensor:
        return record1(OPS["bitwise_invert"], self._node)  # type: ignore[no-any-return]

    def __pow__(self, other: Any) -> Tensor:
        found = constant_power(self._node, other)
        return _POW[0](self, other) if found is None else found  # type: ignore[no-any-return]

    __add__, __radd__, __iadd__ = operator(OPS["add"])
    __sub__, __rsub__, __isub__ = operator(OPS["subtract"])
    __mul__, __rmul__, __imul__ = operator(OPS["multiply"])
    __truediv__, __rtruediv__, __itruediv__ = operator(OPS["divide"])
    __floordiv__, __rfloordiv__, __ifloordiv__ = operator(OPS["floor_divide"])
    __mod__, __rmod__, __imod__ = operator(OPS["remainder"])
    _, __rpow__, __ipow__ = operator(OPS["pow"])
    __matmul__, __rmatmul__, __imatmul__ = operator(ARRAY["matmul"])
    __and__, __rand__, __iand__ = operator(OPS["bitwise_and"])
    __or__, __ror__, __ior__ = operator(OPS["bitwise_or"])
    __xor__, __rxor__, __ixor__ = operator(OPS["bitwise_xor"])
    __lshift__, __rlshift__, __ilshift__ = operator(OPS["bitwise_left_shift"])
    __rshift__, __rrshift__, __irshift__ = operator(OPS["bitwise_right_shift"])
    __lt__ = operator(OPS["less"])[0]
    __le__ = operator(OPS["less_equal"])[0]
    __gt__ = operator(OPS["greater"])[0]
    __ge__ = operator(OPS["greater_equal"])[0]
    __eq__ = operator(OPS["equal"])[0]
    __ne__ = operator(OPS["not_equal"])[0]
    __hash__ = object.__hash__


_POW = operator(OPS["pow"])
recorder.tensor_class = Tensor
