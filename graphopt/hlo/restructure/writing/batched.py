"""What a loop body computes from its counter and from values that never change, for all iterations at once.

A body is read operation by operation, fusions and calls taken apart. A value that depends on nothing that
earlier iterations left is an `Item`; one that does is None. With a block to write to, an item has a value
in front of the loop: with one more dimension, of the iterations, in front where it differs between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.opcodes import OP_BY_NAME, Op, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.folding import (
    INTEGERS,
    Array,
    arithmetic,
    constant_proto,
    value_of,
)
from graphopt.hlo.restructure.writing.values import Value, array_shape, is_row_major


@dataclass(frozen=True)
class Item:
    """A value of the body that is known in front of the loop.

    Attributes:
        shape: ``ShapeProto`` in one iteration; row-major.
        varying: it differs between iterations.
        depth: cost of one element along the longest path that leads to it, in additions; what many elements
            share is divided among them.
        sequence: integers [trips] (or [], the same in all), the value per iteration of a scalar that
            can be computed here; None for all others.
        value: all iterations in row-major order, of shape `flat` if varying; else [*dims]; None if
            nothing is written.
        scalar: what all elements are, in all iterations, if that is one value.
    """

    shape: Any
    varying: bool
    depth: float = 0.0
    sequence: Array | None = None
    value: Value | None = None
    scalar: Value | None = None

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Dimension sizes in one iteration."""
        return tuple(self.shape.dimensions)


Known = Item | list["Known"] | None
"""An item, the elements of a tuple, or None."""

Loops = Callable[[Any, list[Known]], Known]
"""What an inner loop comes to: (its ``HloInstructionProto``, its operands) -> its result."""


class Reader:
    """Reads computations over items, and writes what they compute if there is a block to write to."""

    def __init__(
        self,
        trips: int,
        computations: Callable[[int], Any],
        loops: Loops,
        block: Block | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            trips: iterations.
            computations: computation id -> ``HloComputationProto``.
            loops: decides about inner loops.
            block: where to write, in front of the loop.
        """
        self.trips = trips
        self.computations = computations
        self.loops = loops
        self.block = block
        self.seen: dict[tuple[int, int], Known] = {}
        """(Computation id, local id) -> what is known of everything that was read."""

    def body(self, computation: Any, arguments: Sequence[Known]) -> dict[int, Known]:
        """Local id -> what is known, for every instruction of a computation."""
        known: dict[int, Known] = {}
        for instruction in computation.instructions:
            operands = [known[o & LOCAL_ID] for o in instruction.operand_ids]
            found = self._instruction(instruction, operands, arguments)
            local = instruction.id & LOCAL_ID
            known[local] = self.seen[computation.id, local] = found
        return known

    def _instruction(
        self, instruction: Any, operands: list[Known], arguments: Sequence[Known]
    ) -> Known:
        opcode = instruction.opcode
        if opcode == "parameter":
            number: int = instruction.parameter_number
            return arguments[number]
        if operands and all(o is None for o in operands):
            return None
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            source = operands[0]
            return source[instruction.tuple_index] if isinstance(source, list) else None
        if opcode in ("fusion", "call"):
            called = self.computations(instruction.called_computation_ids[0])
            root: int = called.root_id & LOCAL_ID
            return self.body(called, operands)[root]
        if opcode == "while":
            return self.loops(instruction, operands)
        items = [o for o in operands if isinstance(o, Item)]
        return self._operation(instruction, items) if len(items) == len(operands) else None

    def _operation(self, proto: Any, items: list[Item]) -> Item | None:
        op = OP_BY_NAME.get(proto.opcode)
        shape = proto.shape
        if (
            op is None
            or shape.element_type in (DType.TUPLE, DType.TOKEN)
            or not is_row_major(shape)
        ):
            return None
        depth = op.cost + _depth_below(proto, items)
        if proto.opcode == "dynamic-slice":
            return self._dynamic_slice(proto, items, depth)
        if not _is_legal(op, proto, items):
            return None
        varying = any(i.varying for i in items)
        sequence = _sequence(proto, items)
        if self.block is None:
            return Item(shape, varying, depth, sequence)
        scalar = self._scalar(proto, items)
        if scalar is not None:
            value = self.block.broadcast(scalar, tuple(shape.dimensions))
        else:
            value = self._write(op, proto, items, varying)
        return Item(shape, varying, depth, sequence, value, scalar)

    # Writing.

    def _write(self, op: Op, proto: Any, items: list[Item], varying: bool) -> Value:
        assert self.block is not None
        if proto.opcode == "copy":
            return _value(items[0])
        if not varying:
            return self.block.clone(proto, [_value(i) for i in items])
        dims = tuple(proto.shape.dimensions)
        if proto.opcode in ("bitcast", "reshape"):
            return _value(items[0])
        if op.kind is OpKind.ELEMENTWISE:
            operands = [self._spread(i, dims) for i in items]
            shape = array_shape(proto.shape.element_type, flat(self.trips, dims))
            return self.block.clone(proto, operands, shape)
        out = _WRITERS[proto.opcode](self, proto, items)
        return self.block.bitcast(out, flat(self.trips, dims))

    def _scalar(self, proto: Any, items: list[Item]) -> Value | None:
        """The one value of a constant, or of a single value that is repeated in all iterations."""
        assert self.block is not None
        if proto.opcode in ("broadcast", "bitcast", "reshape", "copy"):
            item = items[0]
            if item.scalar is None and proto.opcode == "broadcast" and prod(item.dims) == 1:
                return None if item.varying else self.block.bitcast(_value(item), ())
            return item.scalar
        if proto.opcode != "constant":
            return None
        if not proto.shape.dimensions:
            return self.block.clone(proto, ())
        known = value_of(proto)
        if known is None or known.size == 0 or np.ptp(known.astype(np.int64)):
            return None
        one = constant_proto(known.ravel()[0], array_shape(proto.shape.element_type, ()))
        return self.block.clone(one, ())

    def _rows(self, item: Item) -> Value:
        """[trips, *dims] of an item, whether it varies or not."""
        assert self.block is not None
        whole = (self.trips, *item.dims)
        if item.varying:
            return self.block.bitcast(_value(item), whole)
        return self.block.broadcast(_value(item), whole, range(1, len(whole)))

    def _spread(self, item: Item, dims: tuple[int, ...]) -> Value:
        """All iterations, flat; of an item of those dimensions, or a scalar."""
        assert self.block is not None
        target = flat(self.trips, dims)
        if item.varying and flat(self.trips, item.dims) == target:
            return _value(item)
        if not item.varying and not item.dims:
            return self.block.broadcast(_value(item), target)
        if item.scalar is not None:
            return self.block.broadcast(item.scalar, target)
        if item.dims == dims and not item.varying and len(target) > 1:
            row = self.block.bitcast(self.block.alone(_value(item)), target[1:])
            return self.block.broadcast(self.block.alone(row), target, [1])
        if item.dims == dims:
            return self.block.bitcast(self._rows(item), target)
        rows = target if len(target) > 1 else (self.trips, *dims)
        return self.block.bitcast(self.block.broadcast(_value(item), rows, [0]), target)

    def _broadcast(self, proto: Any, items: list[Item]) -> Value:
        assert self.block is not None
        dims = tuple(proto.shape.dimensions)
        if not items[0].dims:
            return self._spread(items[0], dims)
        where = [0, *(d + 1 for d in proto.dimensions)]
        return self.block.broadcast(self._rows(items[0]), (self.trips, *dims), where)

    def _transpose(self, proto: Any, items: list[Item]) -> Value:
        assert self.block is not None
        return self.block.transpose(self._rows(items[0]), [0, *(d + 1 for d in proto.dimensions)])

    def _slice(self, proto: Any, items: list[Item]) -> Value:
        assert self.block is not None
        parts = [
            (0, self.trips, 1),
            *((s.start, s.limit, s.stride) for s in proto.slice_dimensions),
        ]
        starts, limits, strides = zip(*parts, strict=True)
        return self.block.slice(self._rows(items[0]), starts, limits, strides)

    def _shifted(self, proto: Any, items: list[Item]) -> Value:
        """Operations of all operands along `dimensions`, which move by one."""
        assert self.block is not None
        start = items[1:] if proto.opcode == "reduce" else []
        operands = [_value(i) if i in start else self._rows(i) for i in items]
        out = self.block.clone(proto, operands, self._batched(proto.shape))
        self.block.protos[-1].dimensions[:] = [d + 1 for d in proto.dimensions]
        return out

    def _pad(self, proto: Any, items: list[Item]) -> Value:
        assert self.block is not None
        operands = [self._rows(items[0]), _value(items[1])]
        out = self.block.clone(proto, operands, self._batched(proto.shape))
        config = self.block.protos[-1].padding_config
        config.ClearField("dimensions")
        config.dimensions.add()
        config.dimensions.extend(proto.padding_config.dimensions)
        return out

    def _batched(self, shape: Any) -> Any:
        return array_shape(shape.element_type, (self.trips, *shape.dimensions))

    # Reading one row per iteration.

    def _dynamic_slice(self, proto: Any, items: list[Item], depth: float) -> Item | None:
        """A part whose place is known: rows taken one after the other become all rows."""
        source, starts = items[0], [i.sequence for i in items[1:]]
        if len(starts) != len(source.dims):
            return None
        sizes = list(proto.dynamic_slice_sizes)
        places = []
        for start, extent, size in zip(starts, source.dims, sizes, strict=True):
            if start is None:
                return None
            place = np.minimum(np.maximum(start, 0), extent - size)  # as XLA clamps it
            places.append(place.astype(np.int64))
        moving = [d for d, place in enumerate(places) if place.ndim and np.ptp(place)]
        if source.varying and moving:
            return None
        if len(moving) > 1 or (moving and not _is_run(places[moving[0]], sizes[moving[0]])):
            return None
        value = None
        if self.block is not None:
            value = self._cut(source, places, sizes, moving)
        return Item(proto.shape, source.varying or bool(moving), depth, None, value)

    def _cut(self, source: Item, places: list[Array], sizes: list[int], moving: list[int]) -> Value:
        assert self.block is not None
        block, first = self.block, [int(p.min()) for p in places]
        limits = [int(p.max()) + size for p, size in zip(places, sizes, strict=True)]
        if source.varying:
            rows = block.slice(self._rows(source), [0, *first], [self.trips, *limits])
            return block.bitcast(rows, flat(self.trips, sizes))
        part = block.slice(_value(source), first, limits)
        if not moving:
            return part
        axis = moving[0]
        if places[axis][0] > places[axis][-1]:
            part = block.add("reverse", part.shape, (part,), dimensions=[axis])
        order = [axis, *(d for d in range(len(sizes)) if d != axis)]
        return block.bitcast(block.transpose(part, order), flat(self.trips, sizes))


WIDE_ROW: Final = 64
"""Elements of one iteration from which on an iteration is a row of its own."""


def flat(trips: int, dims: Sequence[int]) -> tuple[int, ...]:
    """The shape in which elementwise operations on all iterations are done: long last dimensions.

    Loops over a few elements do not vectorise; where an iteration has many, a value that all its elements
    share is read once per row.
    """
    size = prod(dims)
    return (trips, size) if size >= WIDE_ROW else (trips * size,)


def depth_within(shape: Any, item: Item) -> float:
    """What an operand adds to the cost of one element of a result; what many elements share counts once."""
    elements: int = max(1, prod(shape.dimensions))
    return item.depth * min(1.0, prod(item.dims) / elements)


def _depth_below(proto: Any, items: list[Item]) -> float:
    """Cost of what one element of an operation is computed from: of one part, where parts are joined."""
    depths = [depth_within(proto.shape, item) for item in items]
    return sum(depths) if proto.opcode == "concatenate" else max(depths, default=0.0)


def _value(item: Item) -> Value:
    assert item.value is not None
    return item.value


_WRITERS: Final[dict[str, Callable[[Reader, Any, list[Item]], Value]]] = {
    "broadcast": Reader._broadcast,
    "transpose": Reader._transpose,
    "slice": Reader._slice,
    "concatenate": Reader._shifted,
    "reverse": Reader._shifted,
    "reduce": Reader._shifted,
    "pad": Reader._pad,
}
"""Operations other than elementwise ones that are repeated for all iterations."""


def _is_legal(op: Op, proto: Any, items: list[Item]) -> bool:
    if proto.opcode in ("constant", "iota"):
        return True
    if proto.opcode in ("bitcast", "reshape"):
        return bool(items[0].shape.element_type == proto.shape.element_type)
    if op.kind is not OpKind.ELEMENTWISE and proto.opcode not in _WRITERS:
        return False
    if proto.opcode in ("reduce", "pad"):
        return len(items) == 2 and not items[1].varying
    if op.kind is OpKind.ELEMENTWISE:
        dims = tuple(proto.shape.dimensions)
        # others of a scalar, such as its bytes, are views
        scalars = proto.opcode in ("select", "clamp")
        return all(i.dims == dims or (scalars and not i.dims) for i in items)
    return True


def _is_run(places: Array, size: int) -> bool:
    """True for single rows one after the other, upwards or downwards."""
    steps = np.diff(places)
    return size == 1 and bool(np.all(steps == 1) or np.all(steps == -1))


def _sequence(proto: Any, items: list[Item]) -> Array | None:
    """Values of a scalar integer per iteration, where they can be computed here."""
    shape = proto.shape
    dtype = INTEGERS.get(shape.element_type)
    if dtype is None or shape.dimensions:
        return None
    if proto.opcode == "constant":
        return value_of(proto)
    values = [i.sequence for i in items]
    if not values or any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    opcode = proto.opcode
    with np.errstate(over="ignore"):
        if opcode in ("copy", "bitcast", "reshape", "broadcast"):
            return known[0]
        if opcode == "select":
            return np.where(known[0], known[1], known[2])
        if opcode == "clamp":
            return np.minimum(np.maximum(known[1], known[0]), known[2])
        out = arithmetic(proto, known, dtype)
    return None if out is None else np.asarray(out, dtype)
