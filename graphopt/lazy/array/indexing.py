"""Reading and writing parts of a tensor: what an index means, and which operation it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphopt.lazy.array.index import Index
from graphopt.lazy.core import source_lines
from graphopt.lazy.core.dtypes import DEFAULT_INDEX
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyIndexError, LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.ops.indexing import BASIC, GATHER, SCATTER, SCATTER_ADD, UPDATE
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record, scalar
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut

STATIC_BELOW: Final = 4
"""Integers and slice starts below this, and negative ones, are part of the structure; others are
parameters, because they usually come from a loop."""


def _bad(kind: Any, what: str, fix: str) -> Exception:
    return kind(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)  # type: ignore[no-any-return]


def _is_array(entry: Any) -> bool:
    return isinstance(entry, (TensorBase, np.ndarray, list)) or hasattr(entry, "__jax_array__")


def _expanded(x: Any, key: Any) -> list[Any]:
    """The index as a list with the ellipsis written out."""
    entries = list(key) if isinstance(key, tuple) else [key]
    used = 0
    ellipses = 0
    for entry in entries:
        if entry is Ellipsis:
            ellipses += 1
        elif entry is not None:
            used += _mask_ndim(entry) or 1
    if ellipses > 1:
        raise _bad(LazyIndexError, "an index with two ellipses", "Use one.")
    if used > x.ndim:
        raise _bad(
            LazyIndexError,
            f"{used} indices for a tensor with {x.ndim} axes",
            "Give at most one index per axis.",
        )
    fill = [slice(None)] * (x.ndim - used)
    if ellipses:
        at = next(k for k, entry in enumerate(entries) if entry is Ellipsis)
        entries[at : at + 1] = fill
        return entries
    return entries


def _mask_ndim(entry: Any) -> int:
    """Number of axes that a boolean mask consumes; 0 if the entry is no mask."""
    if isinstance(entry, TensorBase):
        aval = entry._node.aval
        return len(aval.shape) if aval.dtype.kind == "bool" else 0
    if isinstance(entry, np.ndarray):
        return entry.ndim if entry.dtype == bool else 0
    if isinstance(entry, list):
        array = np.asarray(entry)
        return array.ndim if array.dtype == bool and array.size else 0
    return 0


def _is_mask(entry: Any) -> bool:
    if isinstance(entry, TensorBase):
        return entry._node.aval.dtype.kind == "bool"
    if isinstance(entry, (bool, np.bool_)):
        return True
    return isinstance(entry, (np.ndarray, list)) and np.asarray(entry).dtype == bool


def _without_masks(x: Any, entries: list[Any]) -> list[Any]:
    """Boolean masks replaced by the positions where they are true: this observes them."""
    result: list[Any] = []
    axis = 0
    for entry in entries:
        if entry is None or not _is_mask(entry):
            result.append(entry)
            axis += entry is not None
            continue
        mask = np.asarray(entry) if not isinstance(entry, TensorBase) else None
        shape = np.shape(entry)
        if tuple(shape) != x.shape[axis : axis + len(shape)]:
            raise _bad(
                LazyIndexError,
                f"a mask of shape {tuple(shape)} for axes of lengths {x.shape[axis:]}",
                "Make the mask's axes as long as those it selects from.",
            )
        if mask is None:
            mask = cut.host(entry._node, "boolean index")
        result += [np.asarray(p, np.int64) for p in np.nonzero(mask)]
        axis += len(shape)
    return result


def parse(x: Any, key: Any) -> Index:
    """Understands an index.

    Raises:
        LazyIndexError: out of range where that is known, or too many indices.
        LazyTypeError: an entry that is no index.
    """
    entries = _without_masks(x, _expanded(x, key))
    advanced = any(_is_array(e) for e in entries)
    items: list[tuple[Any, ...]] = []
    extra: list[Node] = []
    axis = 0
    for entry in entries:
        if entry is None:
            items.append(("n",))
            continue
        length = x.shape[axis]
        axis += 1
        if isinstance(entry, slice):
            item, start = _slice(entry, length, advanced)
            items.append(item)
            if start is not None:
                extra.append(scalar(start, DEFAULT_INDEX, x.device))
        elif _is_array(entry):
            node = _array(x, entry, length)
            items.append(("a",))
            extra.append(node)
        else:
            item, value = _integer(entry, length, advanced)
            items.append(item)
            if value is not None:
                extra.append(scalar(value, DEFAULT_INDEX, x.device))
    return Index(tuple(items), tuple(extra), advanced)


def _integer(entry: Any, length: int, static: bool) -> tuple[tuple[Any, ...], int | None]:
    try:
        value = entry.__index__()
    except (AttributeError, TypeError):
        raise _bad(
            LazyIndexError,
            f"{type(entry).__name__} as an index",
            "Use integers, slices, None, ... or integer and boolean arrays.",
        ) from None
    if not -length <= value < length:
        raise _bad(
            LazyIndexError,
            f"index {value} is out of range for an axis of length {length}",
            f"Use an index from {-length} to {length - 1}.",
        )
    position = value % length
    if static or value < STATIC_BELOW:
        return ("i", position), None
    return ("d",), position


def _slice(entry: slice, length: int, static: bool) -> tuple[tuple[Any, ...], int | None]:
    try:
        start, stop, step = entry.indices(length)
    except (TypeError, ValueError) as error:
        raise _bad(LazyIndexError, f"slice {entry}: {error}", "Use integers.") from None
    count = len(range(start, stop, step))
    if count == 0:
        return ("s", 0, 0, 1), None
    given = entry.start is not None and entry.stop is not None
    from_loop = given and step == 1 and start >= STATIC_BELOW and entry.start >= 0 < entry.stop
    if from_loop and not static and 0 < count < length:
        return ("w", count), start
    return ("s", start, stop if stop >= 0 else None, step), None


def _array(x: Any, entry: Any, length: int) -> Node:
    node = entry._node if isinstance(entry, TensorBase) else _known_array(x, entry)
    if node.aval.dtype.kind not in ("signed", "unsigned"):
        raise _bad(
            LazyIndexError,
            f"an index array of dtype {node.aval.dtype}",
            "Use integer or boolean arrays.",
        )
    if isinstance(node.data, np.ndarray):
        check_range(node.data, length)
    elif length == 0 and node.aval.size:
        raise _bad(LazyIndexError, "an index into an axis of length 0", "There is nothing there.")
    return node


def _known_array(x: Any, entry: Any) -> Node:
    array = np.asarray(entry)
    if array.size == 0 and isinstance(entry, list):
        array = array.astype(np.int64)
    return operands.from_numpy(array, x.device)


def check_range(indices: np.ndarray[Any, Any], length: int) -> None:
    """Checks indices whose values are known.

    Raises:
        LazyIndexError: one is out of range.
    """
    if indices.size == 0:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < -length or high >= length:
        worst = low if low < -length else high
        raise _bad(
            LazyIndexError,
            f"index {worst} is out of range for an axis of length {length}",
            f"Use indices from {-length} to {length - 1}.",
        )


def _with_scalar_masks(x: Any, key: Any) -> tuple[Any, Any]:
    """Masks without axes select from a new axis of length 1."""
    entries = list(key) if isinstance(key, tuple) else [key]
    if not any(_is_mask(e) and np.ndim(e) == 0 for e in entries):
        return x, key
    entries = _expanded_scalar(x, entries)
    axis = 0
    for k, entry in enumerate(entries):
        if entry is not None and _is_mask(entry) and np.ndim(entry) == 0:
            chosen = bool(entry)
            shape = (*x.shape[:axis], 1, *x.shape[axis:])
            x = record(OPS["reshape"], (x._node,), (shape,))
            entries[k] = np.zeros(int(chosen), np.int64)
            axis += 1
        elif entry is not None:
            axis += _mask_ndim(entry) or 1
    return x, tuple(entries)


def _expanded_scalar(x: Any, entries: list[Any]) -> list[Any]:
    """The ellipsis written out; masks without axes take none."""
    used = sum(
        0 if e is None or e is Ellipsis or (_is_mask(e) and np.ndim(e) == 0) else _mask_ndim(e) or 1
        for e in entries
    )
    for k, entry in enumerate(entries):
        if entry is Ellipsis:
            return [*entries[:k], *[slice(None)] * (x.ndim - used), *entries[k + 1 :]]
    return entries


_known: Final[dict[Any, Any]] = {}
"""(operand's aval, signature of the index) -> instruction, positions that are parameters."""

MAX_KNOWN: Final = 4096


def _signature(key: Any) -> Any:
    """A hashable form of an index of integers, slices of integers, None and ellipsis; else None."""
    if type(key) is tuple:
        marks = []
        for entry in key:
            mark = _entry_signature(entry)
            if mark is None:
                return None
            marks.append(mark)
        return tuple(marks)
    return _entry_signature(key)


def _entry_signature(entry: Any) -> Any:
    kind = type(entry)
    if kind is int:
        return entry
    if kind is slice:
        start, stop, step = entry.start, entry.stop, entry.step
        if all(v is None or type(v) is int for v in (start, stop, step)):
            return start, stop, step
        return None
    if entry is None:
        return "new"
    return "..." if entry is Ellipsis else None


def getitem(x: Any, key: Any) -> Any:
    """``x[key]``; a boolean mask is observed, everything else is recorded."""
    mark = _signature(key)
    if mark is not None:
        known = _known.get((x._node.aval, mark))
        if known is not None:
            instr, values = known
            if not values:
                return recorder.record_known(instr, (x._node,))
            places = [scalar(value, DEFAULT_INDEX, x.device) for value in values]
            return recorder.record_known(instr, (x._node, *places))
    x, key = _with_scalar_masks(x, key)
    index = parse(x, key)
    if mark is not None and not index.advanced:
        inputs = (x._node, *index.extra)
        instr = recorder.instruction(BASIC, inputs, (index.items,))
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[x._node.aval, mark] = instr, tuple([node.data for node in index.extra])
        return recorder.record_known(instr, inputs)
    op = GATHER if index.advanced else BASIC
    return record(op, (x._node, *index.extra), (index.items,))


def _value(x: Any, value: Any) -> Node:
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    node = operands.operand(value, x._node, "assignment")
    found, wanted = node.aval.dtype, x.dtype
    order = ("bool", "unsigned", "signed", "float", "complex")
    if order.index(found.kind) > max(order.index(wanted.kind), 2 * (wanted.kind == "unsigned")):
        raise _bad(
            LazyTypeError,
            f"assignment of {found} values to a {wanted} tensor",
            f"Convert them with lt.astype(value, lt.{wanted}).",
        )
    return operands.cast(node, wanted)


def setitem(x: Any, key: Any, value: Any) -> Any:
    """The tensor that ``x[key] = value`` leaves in ``x``."""
    node = _value(x, value)
    if _is_plain_mask(x, key) and not node.aval.shape:
        mask = key if isinstance(key, TensorBase) else recorder.new_tensor(
            operands.from_numpy(np.asarray(key), x.device)
        )  # fmt: skip
        condition = mask._node
        missing = x.ndim - len(condition.aval.shape)
        if missing:
            shape = condition.aval.shape + (1,) * missing
            condition = record(OPS["reshape"], (condition,), (shape,))._node
        return record(OPS["where"], (condition, node, x._node))
    whole, key = _with_scalar_masks(x, key)
    index = parse(whole, key)
    op = SCATTER if index.advanced else UPDATE
    result = _written(op, whole, node, index)
    return result if whole is x else record(OPS["reshape"], (result._node,), (x.shape,))


def _is_plain_mask(x: Any, key: Any) -> bool:
    if isinstance(key, tuple):
        return False
    if not _is_mask(key):
        return False
    ndim = _mask_ndim(key)
    shape = np.shape(key)
    return bool(ndim <= x.ndim and tuple(shape) == x.shape[:ndim])


def _written(op: Any, x: Any, node: Node, index: Index) -> Any:
    result = record(op, (x._node, node, *index.extra), (index.items,))
    if result.shape != x.shape:
        raise _bad(
            LazyValueError,
            f"assignment of shape {node.aval.shape} does not fit",
            "Make the value broadcast to the indexed part.",
        )
    return result


@dataclass(frozen=True)
class At:
    """``x.at``: index it, then ``set`` or ``add``.

    Attributes:
        tensor: what is written to.
    """

    tensor: Any

    def __getitem__(self, key: Any) -> AtIndex:
        return AtIndex(self.tensor, key)


@dataclass(frozen=True)
class AtIndex:
    """A place in a tensor.

    Attributes:
        tensor: what is written to.
        key: the place.
    """

    tensor: Any
    key: Any

    def set(self, value: Any) -> Any:
        """A tensor with `value` there."""
        return setitem(self.tensor, self.key, value)

    def add(self, value: Any) -> Any:
        """A tensor with `value` added there; repeated indices add up."""
        index = parse(self.tensor, self.key)
        if index.advanced:
            return _written(SCATTER_ADD, self.tensor, _value(self.tensor, value), index)
        part = getitem(self.tensor, self.key)
        return setitem(self.tensor, self.key, part + value)
