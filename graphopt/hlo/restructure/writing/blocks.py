"""Writing new instructions into a module: what every expansion is made of.

A `ModuleEditor` hands out names and ids and collects new computations; a `Block` is a run of new
instructions inside one computation. Shapes are row-major throughout. All operations are written
bare; grouping them into clusters is left to `graphopt.hlo.replace.apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

from graphopt.hlo.module.proto import (
    DType,
    HloComputationProto,
    HloInstructionProto,
    LiteralProto,
)
from graphopt.hlo.restructure.writing.values import Value, array_shape, is_row_major, tuple_shape

_LITERAL_FIELDS: Final[dict[int, str]] = {
    DType.PRED: "preds", DType.S32: "s32s", DType.S64: "s64s", DType.U32: "u32s",
    DType.U64: "u64s", DType.F32: "f32s", DType.F64: "f64s",
}  # fmt: skip
"""Element types whose constants are written directly; others are converted from s32."""


class ModuleEditor:
    """Names, ids and new computations of a module that is being edited.

    Attributes:
        computations: computation id -> ``HloComputationProto`` of that module.
        fresh: (computation id, local id) -> origin, for every instruction that blocks wrote.
        kept: (computation id, local id) -> node that a new instruction still is.
        chained: (computation id, local id) of instructions of chains (`graphopt.hlo.replace.chains`).
        packed: names of operations that `graphopt.hlo.restructure.rows.pack` may compute together.
        alone: (computation id, local id) of instructions that are kernels of their own.
        fused: (computation id, local id) of instructions that are part of every kernel that reads them.
        arranged: (computation id, local id) of instructions that bring an operand, which is read from memory,
            into another order; what loops keep is arranged ahead of them.
    """

    def __init__(
        self,
        computations: Iterable[Any],
        placed: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> None:
        """Indexes a module.

        Args:
            computations: ``HloComputationProto`` of each; only read.
            placed: which node an instruction (computation id, local id) is.
        """
        self._placed = placed
        self.computations = {c.id: c for c in computations}
        self.fresh: dict[tuple[int, int], int] = {}
        self.kept: dict[tuple[int, int], int] = {}
        self.chained: set[tuple[int, int]] = set()
        self.packed: set[str] = set()
        self.alone: set[tuple[int, int]] = set()
        self.fused: set[tuple[int, int]] = set()
        self.arranged: set[tuple[int, int]] = set()
        self.written: list[Any] = []
        """Finished new computations that the next edited one must follow."""
        self._next_computation: int = max(self.computations) + 1
        self._names = {i.name for c in self.computations.values() for i in c.instructions}
        self._serial = 0

    def unique_name(self, base: str) -> str:
        """A name that no instruction has."""
        while True:
            self._serial += 1
            name = f"{base}.r{self._serial}"
            if name not in self._names:
                self._names.add(name)
                return name

    def stands_for(self, copy: tuple[int, int], source: tuple[int, int], origin: int) -> None:
        """Records that an instruction repeats another: it is the same node, or as new as that is."""
        self.fresh.pop(copy, None)
        if source in self.fresh:
            self.fresh[copy] = origin
        else:
            node = self.kept.get(source, self._placed.get(source))
            if node is not None:
                self.kept[copy] = node

    def new_computation_id(self) -> int:
        """An id that no computation has."""
        self._next_computation += 1
        return self._next_computation - 1


class Block:
    """New instructions of one computation, in execution order.

    Attributes:
        editor: of the module.
        origin: what the instructions are recorded under in `ModuleEditor.fresh`.
        protos: the instructions written so far.
    """

    def __init__(self, editor: ModuleEditor, computation: int, origin: int, first_id: int) -> None:
        """Starts a block in computation `computation` whose ids begin at `first_id`."""
        self.editor = editor
        self.computation = computation
        self.origin = origin
        self.protos: list[Any] = []
        self.next_id = first_id

    def add(self, opcode: str, shape: Any, operands: Iterable[Value] = (), **fields: Any) -> Value:
        """A new instruction; `fields` are scalar or repeated fields of its proto."""
        proto = HloInstructionProto(opcode=opcode, **fields)
        proto.shape.CopyFrom(shape)
        return self._append(proto, operands)

    def clone(self, source: Any, operands: Iterable[Value], shape: Any = None) -> Value:
        """A copy of an instruction on other operands, with another shape if one is given."""
        proto = HloInstructionProto()
        proto.CopyFrom(source)
        for name in ("operand_ids", "control_predecessor_ids", "metadata", "original_value"):
            proto.ClearField(name)
        if shape is not None:
            proto.shape.CopyFrom(shape)
        return self._append(proto, operands)

    def _append(self, proto: Any, operands: Iterable[Value]) -> Value:
        proto.name = self.editor.unique_name(proto.opcode)
        proto.id = self.next_id
        proto.operand_ids.extend([operand.id for operand in operands])
        self.next_id += 1
        self.protos.append(proto)
        self.editor.fresh[self.computation, proto.id] = self.origin
        return Value(proto.id, proto.shape)

    def keep(self, value: Value, node: int) -> None:
        """A new instruction is an old node, whose decisions it keeps."""
        del self.editor.fresh[self.computation, value.id]
        self.editor.kept[self.computation, value.id] = node

    def drop_unread(self, results: Iterable[Value]) -> None:
        """Removes instructions that none of the results needs."""
        needed = {value.id for value in results}
        kept = []
        for proto in reversed(self.protos):
            if proto.id in needed:
                needed.update(proto.operand_ids)
                kept.append(proto)
            else:
                del self.editor.fresh[self.computation, proto.id]
        self.protos[:] = kept[::-1]

    # Elementwise operations and constants.

    def constant(self, dtype: int, value: float) -> Value:
        """A scalar constant."""
        if dtype not in _LITERAL_FIELDS:
            return self.convert(self.constant(DType.S32, value), dtype)
        kind = bool if dtype == DType.PRED else (float if dtype in _FLOATS else int)
        return self._literal(array_shape(dtype, ()), [kind(value)])

    def zeros(self, dtype: int, count: int) -> Value:
        """A constant array of floating-point zeros."""
        return self._literal(array_shape(dtype, (count,)), [0.0] * count)

    def turned_constant(self, source: Any) -> Value:
        """A constant matrix of floating-point numbers, turned."""
        name = _LITERAL_FIELDS[source.shape.element_type]
        rows, columns = source.shape.dimensions
        given = getattr(LiteralProto.FromString(source.literal), name)
        turned = [given[r * columns + c] for c in range(columns) for r in range(rows)]
        return self._literal(array_shape(source.shape.element_type, (columns, rows)), turned)

    def _literal(self, shape: Any, values: Iterable[bool | int | float]) -> Value:
        literal = LiteralProto()
        literal.shape.CopyFrom(shape)
        getattr(literal, _LITERAL_FIELDS[shape.element_type]).extend(values)
        return self.add("constant", shape, literal=literal.SerializeToString())

    def op(self, opcode: str, *operands: Value) -> Value:
        """An elementwise operation whose result has the shape of its last operand."""
        return self.add(opcode, operands[-1].shape, operands)

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        """``direction`` is EQ, NE, LT, LE, GT or GE; a total order only on integers."""
        shape = array_shape(DType.PRED, a.dims)
        shape.layout.CopyFrom(a.shape.layout)
        return self.add(
            "compare", shape, (a, b),
            comparison_direction=direction, comparison_type=_COMPARISON.get(a.dtype, "SIGNED"),
        )  # fmt: skip

    def convert(self, x: Value, dtype: int) -> Value:
        """Another element type; the value itself if it has that type."""
        if x.dtype == dtype:
            return x
        shape = array_shape(dtype, x.dims)
        shape.layout.CopyFrom(x.shape.layout)
        return self.add("convert", shape, (x,))

    # Data movement.

    def iota(self, dims: Sequence[int], dimension: int) -> Value:
        """s32 array of positions along a dimension."""
        return self.add("iota", array_shape(DType.S32, dims), dimensions=[dimension])

    def transposed(self, x: Value) -> Value:
        """A column-major matrix as the row-major transposed one, or the other way round."""
        dims = (x.dims[1], x.dims[0])
        shape = array_shape(x.dtype, dims)
        if is_row_major(x.shape):
            shape.layout.minor_to_major[:] = [0, 1]
        return self.add("bitcast", shape, (x,))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """`x` with its dimensions in another order; result dimension i is ``order[i]`` of `x`."""
        if list(order) == sorted(order):
            return x
        shape = array_shape(x.dtype, [x.dims[d] for d in order])
        return self.add("transpose", shape, (x,), dimensions=list(order))

    def arranged(self, x: Value, order: Sequence[int]) -> Value:
        """The same as `transpose`, of an operand that is to be read from memory in that order."""
        out = self.transpose(x, order)
        if out is not x:
            self.editor.arranged.add((self.computation, out.id))
            self.alone(out)
        return out

    def alone(self, x: Value) -> Value:
        """The same value, which is computed once, into memory."""
        self.editor.alone.add((self.computation, x.id))
        return x

    def broadcast(self, x: Value, dims: Sequence[int], dimensions: Sequence[int] = ()) -> Value:
        """`x` repeated to `dims`; its dimension i becomes ``dimensions[i]``."""
        if tuple(dims) == x.dims:
            return x
        return self.add("broadcast", array_shape(x.dtype, dims), (x,), dimensions=list(dimensions))

    def full(self, dtype: int, value: float, dims: Sequence[int]) -> Value:
        """An array of one value."""
        return self.broadcast(self.constant(dtype, value), dims)

    def bitcast(self, x: Value, dims: Sequence[int]) -> Value:
        """The same elements in row-major order under other dimensions."""
        assert prod(dims) == prod(x.dims)
        return x if tuple(dims) == x.dims else self.add("bitcast", array_shape(x.dtype, dims), (x,))

    def copy(self, x: Value) -> Value:
        """A buffer of its own with the same value."""
        return self.add("copy", x.shape, (x,))

    def slice(
        self,
        x: Value,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> Value:
        """``x[starts:limits:strides]``; strides of one if none are given."""
        strides = [1] * len(starts) if strides is None else strides
        parts = list(zip(starts, limits, strides, strict=True))
        dims = [len(range(*part)) for part in parts]
        if tuple(dims) == x.dims:
            return x
        out = self.add("slice", array_shape(x.dtype, dims), (x,))
        for start, limit, stride in parts:
            self.protos[-1].slice_dimensions.add(start=start, limit=limit, stride=stride)
        return out

    def element(self, x: Value, index: Sequence[int]) -> Value:
        """One element of an array as a scalar."""
        part = self.slice(x, index, [i + 1 for i in index])
        return self.bitcast(part, ())

    def dynamic_slice(self, x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
        """``x[starts : starts + sizes]``, the starts clamped into range; scalars stay scalars."""
        if not sizes:
            return x
        shape = array_shape(x.dtype, sizes)
        return self.add("dynamic-slice", shape, (x, *starts), dynamic_slice_sizes=list(sizes))

    def dynamic_update_slice(self, x: Value, update: Value, starts: Sequence[Value]) -> Value:
        """`x` with `update` written at `starts`, clamped into range; overwrites the buffer of `x`."""
        return self.add("dynamic-update-slice", x.shape, (x, update, *starts))

    def concatenate(self, parts: Sequence[Value], dimension: int) -> Value:
        """The parts one after the other along a dimension."""
        if len(parts) == 1:
            return parts[0]
        dims = list(parts[0].dims)
        dims[dimension] = sum(part.dims[dimension] for part in parts)
        shape = array_shape(parts[0].dtype, dims)
        return self.add("concatenate", shape, parts, dimensions=[dimension])

    def reduce(
        self, x: Value, init: Value, dimensions: Sequence[int], computation: int, dtype: int
    ) -> Value:
        """`x` reduced over `dimensions` by an applied computation."""
        dims = [n for d, n in enumerate(x.dims) if d not in dimensions]
        return self.add(
            "reduce", array_shape(dtype, dims), (x, init),
            dimensions=list(dimensions), called_computation_ids=[computation],
        )  # fmt: skip

    def function(self, opcode: str, dtype: int) -> int:
        """Id of a new applied computation: one binary operation on scalars."""
        inner = Block(self.editor, self.editor.new_computation_id(), self.origin, 1)
        shape = array_shape(dtype, ())
        a = inner.add("parameter", shape)
        b = inner.add("parameter", shape, parameter_number=1)
        inner.finish("restructured_function", inner.add(opcode, shape, (a, b)), shape, shape)
        return inner.computation

    def tuple(self, parts: Sequence[Value]) -> Value:
        """A tuple."""
        return self.add("tuple", tuple_shape(p.shape for p in parts), parts)

    def part(self, x: Value, index: int) -> Value:
        """Element `index` of a tuple."""
        return self.add("get-tuple-element", x.shape.tuple_shapes[index], (x,), tuple_index=index)

    # Control flow.

    def loop(
        self,
        trips: int,
        carried: Sequence[Value],
        body: Callable[[Block, Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """A ``while`` that runs `body` for k = 0 ... trips-1; returns the carried values.

        Args:
            trips: known trip count.
            carried: initial values. One that the body changes must have a buffer of its own.
            body: (block, k as s32 scalar, carried values) -> the next carried values; one that it
                returns as it got it is only read.
        """
        counter = self.copy(self.constant(DType.S32, 0))
        init = self.tuple([counter, *carried])
        body_id = self._loop_body(init.shape, body)
        condition_id = self._loop_condition(init.shape, trips)
        config = (
            f'{{"known_trip_count":{{"n":"{trips}"}},"known_init_step":{{"init":"0","step":"1"}},'
            '"known_induction_variable":{"tuple_index":"0"},"dynamic_variables":[]}'
        )
        loop = self.add(
            "while", init.shape, (init,),
            called_computation_ids=[body_id, condition_id], backend_config=config.encode(),
        )  # fmt: skip
        return [self.part(loop, i + 1) for i in range(len(carried))]

    def _loop_body(
        self, shape: Any, body: Callable[[Block, Value, list[Value]], Sequence[Value]]
    ) -> int:
        inner = Block(self.editor, self.editor.new_computation_id(), self.origin, 1)
        parameter = inner.add("parameter", shape)
        # The counter's buffer is overwritten by the next one: everything else reads the copy.
        k = inner.copy(inner.part(parameter, 0))
        parts = [inner.part(parameter, i + 1) for i in range(len(shape.tuple_shapes) - 1)]
        results = body(inner, k, parts)
        step = inner.op("add", k, inner.constant(DType.S32, 1))
        inner.finish("restructured_body", inner.tuple([step, *results]), shape)
        return inner.computation

    def _loop_condition(self, shape: Any, trips: int) -> int:
        inner = Block(self.editor, self.editor.new_computation_id(), self.origin, 1)
        parameter = inner.add("parameter", shape)
        k = inner.part(parameter, 0)
        limit = inner.constant(DType.S32, trips)
        inner.finish("restructured_condition", inner.compare("LT", k, limit), shape)
        return inner.computation

    def finish(self, name: str, root: Value, *parameters: Any) -> None:
        """Makes the block, whose parameters come first, a computation of the module."""
        proto = HloComputationProto(
            name=f"{name}.{self.computation}", id=self.computation, root_id=root.id
        )
        proto.execution_thread = "main"
        proto.instructions.extend(self.protos)
        for number, shape in enumerate(parameters):
            proto.program_shape.parameters.add().CopyFrom(shape)
            proto.program_shape.parameter_names.append(self.protos[number].name)
        proto.program_shape.result.CopyFrom(root.shape)
        self.editor.written.append(proto)


_FLOATS: Final = frozenset({DType.F32, DType.F64})

_COMPARISON: Final[dict[int, str]] = {
    **{DType[n]: "FLOAT" for n in ("F16", "BF16", "F32", "F64", "C64", "C128")},
    **{DType[n]: "UNSIGNED" for n in ("PRED", "U8", "U16", "U32", "U64")},
}
