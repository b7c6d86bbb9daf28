"""Exchange with jax, NumPy and other array libraries, without copies where memory can be shared."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.node import aval_of, leaf
from graphopt.lazy.errors import LazyBufferError, LazyTypeError
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut, tiers


def to_jax(x: Any) -> Any:
    """The value as a jax array, computed if pending and never copied from another jax array.

    Its dtype is kept: a float64 tensor gives a float64 array, whatever ``jax_enable_x64`` says.
    """
    node = operands.node_of(x, "to_jax")
    value = cut.observe(node, "to_jax")
    if isinstance(value, np.ndarray):
        value = node.data = tiers.put(value, node.aval.device)
    return value


def from_jax(array: Any) -> Any:
    """A tensor that refers to a jax array (or tracer) without a copy.

    Raises:
        LazyTypeError: it is no jax array.
    """
    if not isinstance(array, jax.Array):
        raise LazyTypeError(
            what=f"from_jax of {type(array).__name__}",
            where=source_lines.line_of(source_lines.here()),
            fix="Use lt.asarray for other arrays.",
        )
    return recorder.new_tensor(operands.from_jax_array(array))


def to_device(x: Any, device: Any) -> Any:
    """`x` on another device; the tensor itself if it is there already."""
    target = operands.as_device(device)
    node = x._node
    if node.aval.device is target:
        return x
    value = cut.observe(node, "to_device")
    moved = tiers.put(value, target)
    return recorder.new_tensor(leaf(moved, aval_of(node.aval.shape, node.aval.dtype, target)))


def restore(array: np.ndarray[Any, Any]) -> Any:
    """A tensor from a pickled value."""
    return recorder.new_tensor(operands.from_numpy(array, None))


# DLPack: through NumPy on a CPU, through jax elsewhere.

_CPU = (1, 0)


def dlpack_device(x: Any) -> tuple[Any, int]:
    """DLPack's (device type, device id)."""
    if x.device.platform == "cpu":
        return _CPU
    found: tuple[Any, int] = to_jax(x).__dlpack_device__()
    return found


def to_dlpack(x: Any, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """A DLPack capsule of the value.

    Raises:
        LazyBufferError: a device or copy that is not possible.
    """
    if x.device.platform != "cpu":
        return to_jax(x).__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )
    if dl_device is not None and tuple(map(int, dl_device)) != _CPU:
        raise LazyBufferError(
            what=f"export from the CPU to DLPack device {dl_device}",
            where=source_lines.line_of(source_lines.here()),
            fix="Move the tensor with x.to_device first.",
        )
    array = cut.host(x._node, "dlpack")
    if copy:
        array = array.copy()
    readonly = not array.flags.writeable
    if readonly and (max_version is None or max_version[0] < 1):
        if copy is False:
            raise LazyBufferError(
                what="a read-only value as an unversioned DLPack capsule without a copy",
                where=source_lines.line_of(source_lines.here()),
                fix="Pass max_version=(1, 0) or leave out copy=False.",
            )
        array = array.copy()  # old capsules cannot say that they are read-only
    return array.__dlpack__(max_version=max_version)


class _Unset:
    def __repr__(self) -> str:
        return "unset"


_UNSET = _Unset()


def from_dlpack(x: Any, /, *, device: Any = _UNSET, copy: Any = _UNSET) -> Any:
    """A tensor from any object that supports DLPack.

    Memory is shared only with tensors and jax arrays, which nobody can write to; others are copied.

    Raises:
        LazyBufferError: ``copy=False`` for memory that its owner may write to.
        LazyTypeError: no support for DLPack.
    """
    if not hasattr(x, "__dlpack__"):
        raise LazyTypeError(
            what=f"from_dlpack of {type(x).__name__}",
            where=source_lines.line_of(source_lines.here()),
            fix="Pass an object with __dlpack__.",
        )
    if isinstance(x, TensorBase):
        result = recorder.hold(x._node)
    elif isinstance(x, jax.Array):
        result = from_jax(x)
    elif copy is False:
        raise LazyBufferError(
            what=f"memory of {type(x).__name__} without a copy",
            where=source_lines.line_of(source_lines.here()),
            fix="Leave out copy=False: its owner could write to it.",
        )
    else:
        array = np.array(np.from_dlpack(x)) if _on_cpu(x) else jax.dlpack.from_dlpack(x)
        if isinstance(array, jax.Array):
            result = from_jax(array)
        else:
            result = recorder.new_tensor(operands.from_numpy(array, None, copy=False))
    return result if device in (_UNSET, None) else to_device(result, device)


def _on_cpu(x: Any) -> bool:
    return int(x.__dlpack_device__()[0]) == 1


# Pytrees: a tensor is a node with one leaf, its value as a jax array.


def _flatten(x: Any) -> tuple[tuple[Any, ...], None]:
    node = x._node
    if not _is_array(node.data) and node.data is not None:
        return (node.data,), None
    return (to_jax(x),), None


def _unflatten(_: None, children: tuple[Any, ...]) -> Any:
    (child,) = children
    if isinstance(child, jax.Array):
        return from_jax(child)
    if isinstance(child, np.ndarray):
        return recorder.new_tensor(operands.from_numpy(child, None))
    # jax puts placeholders into trees; they come back out unchanged.
    aval = aval_of(tuple(getattr(child, "shape", ())), dtypes.DEFAULT_FLOAT, None)
    return recorder.new_tensor(leaf(_Held(child), aval))


class _Held:
    """A child of a pytree that is no array."""

    def __init__(self, child: Any) -> None:
        self.child = child


def _is_array(data: Any) -> bool:
    return isinstance(data, (jax.Array, np.ndarray))


def register_pytree(kind: type[Any]) -> None:
    """Lets jax take tensors apart and put them together."""

    def flatten(x: Any) -> tuple[tuple[Any, ...], None]:
        data = x._node.data
        return ((data.child,), None) if isinstance(data, _Held) else _flatten(x)

    jax.tree_util.register_pytree_node(kind, flatten, _unflatten)
