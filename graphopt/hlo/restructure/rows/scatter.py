"""Scatter as a loop: read the window, combine, write it back; windows in order.

Semantics are those of XLA's ``ScatterExpander``: an update whose window does not lie inside the operand
as a whole is skipped; updates are applied in the order of their indices, so that results with
repeated indices are the same bit for bit; ``indices_are_sorted`` and ``unique_indices`` are promises that
the loop does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from graphopt.hlo.graph.targets import fusion_targets
from graphopt.hlo.module.index import ComputationIndex, Instruction, Role
from graphopt.hlo.module.opcodes import OP_BY_NAME
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline, is_elementwise_function
from graphopt.hlo.restructure.writing.values import Value, is_row_major

MAX_STEPS: Final = 1 << 20
"""Most windows of one scatter: the loop counter and the code that decodes it are s32."""

RULES: Final = {
    "scatter-combiner": "the combiner is more than scalar arithmetic",
    "scatter-size": "no update, or too many",
    "scatter-fusion": "the fusion holds no scatter, or operations that must stay fused",
}

_WIDE_INDICES: Final = frozenset({DType.S64, DType.U64, DType.U32})


def forbids(candidate: Candidate) -> str | None:
    """Why a scatter, or a fusion that holds one, cannot become a loop."""
    if candidate.instruction.opcode == "scatter":
        if not candidate.has_default_layouts():
            return "layout"
        indices, updates = _sides(list(candidate.arrays()))
        return _forbids(candidate.instruction, candidate.applied, indices, updates)
    if candidate.instruction.fusion_kind != "kLoop":
        return "scatter-fusion"
    return _forbids_fusion(candidate)


def _sides(shapes: Sequence[Any]) -> tuple[Any, Any]:
    """Shapes of the indices and of the first update; `shapes` are those of the operands and more."""
    count = len(shapes) // 3
    return shapes[count], shapes[count + 1]


def _forbids(instruction: Any, combiner: Any, indices: Any, updates: Any) -> str | None:
    if not is_elementwise_function(combiner):
        return "scatter-combiner"
    numbers = instruction.scatter_dimension_numbers
    windows = set(numbers.update_window_dims)
    steps = prod(n for d, n in enumerate(updates.dimensions) if d not in windows)
    if not 1 <= steps <= MAX_STEPS or not prod(updates.dimensions) or not prod(indices.dimensions):
        return "scatter-size"
    return None


def _forbids_fusion(candidate: Candidate) -> str | None:
    body = candidate.computations[candidate.graph.source.called[candidate.node][0]]
    scatters = 0
    for instruction in body.instructions:
        opcode = instruction.opcode
        if opcode == "parameter":
            if instruction.shape.element_type == DType.TUPLE:
                return "scatter-fusion"
        elif opcode == "scatter":
            scatters += 1
            shapes = [body.by_id[o].shape for o in instruction.operands]
            combiner = candidate.computations[instruction.called[0]].proto
            indices, updates = _sides([*shapes, *shapes[: len(shapes) // 2]])
            rule = _forbids(instruction.proto, combiner, indices, updates)
            if rule is not None:
                return rule
        elif opcode in ("tuple", "get-tuple-element"):
            continue
        elif not OP_BY_NAME[opcode].fusible or opcode in ("copy", "dynamic-update-slice"):
            return "scatter-fusion"
        leaves = instruction.shape.tuple_shapes or (instruction.shape,)
        if not all(is_row_major(leaf) for leaf in leaves):
            return "layout"
    return None if scatters else "scatter-fusion"


def expand(site: Site) -> Value:
    """Writes the loop for a scatter; a fusion is taken apart around its scatters."""
    if site.instruction.opcode == "scatter":
        return _write(site.block, site.instruction, site.applied, site.operands)
    return _flatten(site)


def _flatten(site: Site) -> Value:
    body = site.applied
    by_id = {i.id & 0xFFFFFFFF: i for i in body.instructions}
    uses: dict[int, int] = {}
    for instruction in body.instructions:
        for operand in set(instruction.operand_ids):
            uses[operand & 0xFFFFFFFF] = uses.get(operand & 0xFFFFFFFF, 0) + 1
    in_place = _in_place_parameters(site, body)
    values: dict[int, Value] = {}
    for local, instruction in by_id.items():
        operands = [values[o & 0xFFFFFFFF] for o in instruction.operand_ids]
        if instruction.opcode == "parameter":
            values[local] = site.operands[instruction.parameter_number]
        elif instruction.opcode == "scatter":
            count = (len(operands) - 1) // 2
            for i, source in enumerate(instruction.operand_ids[:count]):
                behind = _behind(by_id, source & 0xFFFFFFFF)
                own = behind in in_place if by_id[behind].opcode == "parameter" else (
                    uses[source & 0xFFFFFFFF] == 1 and behind == source & 0xFFFFFFFF
                    and by_id[behind].opcode != "constant"
                )  # fmt: skip
                if not own:
                    operands[i] = site.block.copy(operands[i])
            combiner = site.computations[instruction.called_computation_ids[0]]
            values[local] = _write(site.block, instruction, combiner, operands)
        else:
            values[local] = site.block.clone(instruction, operands)
    return values[body.root_id & 0xFFFFFFFF]


def _behind(by_id: dict[int, Any], local: int) -> int:
    """The instruction behind a chain of bitcasts."""
    while by_id[local].opcode == "bitcast":
        local = by_id[local].operand_ids[0] & 0xFFFFFFFF
    return local


def _in_place_parameters(site: Site, body: Any) -> set[int]:
    """Parameters that XLA's own fusion overwrites: its root scatters into them."""
    instructions = [Instruction(i) for i in body.instructions]
    index = ComputationIndex(
        body, Role.FUSED, instructions, {i.local: i for i in instructions},
        body.root_id & 0xFFFFFFFF,
    )  # fmt: skip
    targets = set(fusion_targets(index))
    return {
        i.local
        for i in instructions
        if i.opcode == "parameter" and i.proto.parameter_number in targets
    }


def _write(block: Block, instruction: Any, combiner: Any, operands: list[Value]) -> Value:
    """The loop over all windows; returns the result, a tuple of several if there are several."""
    count = (len(operands) - 1) // 2
    targets, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    plan = _Plan(instruction.scatter_dimension_numbers, targets[0].dims, indices, updates[0].dims)

    def step(inner: Block, k: Value, carried: list[Value]) -> list[Value]:
        old_targets, old_indices, old_updates = (
            carried[:count], carried[count], carried[count + 1 :],
        )  # fmt: skip
        new = plan.step(inner, k, old_targets, old_indices, old_updates, combiner)
        return [*new, old_indices, *old_updates]

    if plan.steps == 1:
        results = plan.step(
            block, block.constant(DType.S32, 0), targets, indices, updates, combiner
        )
    else:
        results = block.loop(plan.steps, [*targets, indices, *updates], step)[:count]
    return results[0] if instruction.shape.element_type != DType.TUPLE else block.tuple(results)


class _Plan:
    """Which window goes where, from the dimension numbers."""

    def __init__(
        self, numbers: Any, target: tuple[int, ...], indices: Value, update: tuple[int, ...]
    ) -> None:
        self.target = target
        self.update = update
        self.vector_dim = int(numbers.index_vector_dim)
        self.indices = indices.dims
        window_dims = set(numbers.update_window_dims)
        self.batch_dims = [d for d in range(len(update)) if d not in window_dims]
        """Dimensions of the updates that count windows, in the order of the indices' own."""
        self.steps = prod(update[d] for d in self.batch_dims)
        absent = set(numbers.inserted_window_dims) | set(numbers.input_batching_dims)
        sizes = iter([update[d] for d in sorted(window_dims)])
        self.window = [1 if d in absent else next(sizes) for d in range(len(target))]
        self.scattered = list(numbers.scatter_dims_to_operand_dims)
        self.batched = dict(
            zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        )
        self.index_type = DType.S64 if indices.dtype in _WIDE_INDICES else DType.S32

    def step(
        self,
        block: Block,
        k: Value,
        targets: Sequence[Value],
        indices: Value,
        updates: Sequence[Value],
        combiner: Any,
    ) -> list[Value]:
        """One window of every target."""
        digits = self._digits(block, k)
        starts, inside = self._starts(block, indices, digits)
        zero = block.constant(DType.S32, 0)
        at = [zero] * len(self.update)
        sizes = list(self.update)
        for dimension, digit in zip(self.batch_dims, digits, strict=True):
            at[dimension], sizes[dimension] = digit, 1
        old = [block.dynamic_slice(t, starts, self.window) for t in targets]
        new = [block.bitcast(block.dynamic_slice(u, at, sizes), self.window) for u in updates]
        combined = inline(block, combiner, [*old, *new])
        if inside is not None:
            choose = block.broadcast(inside, self.window)
            combined = [
                block.op("select", choose, c, o) for c, o in zip(combined, old, strict=True)
            ]
        if not self.target:
            return combined
        return [
            block.dynamic_update_slice(t, c, starts) for t, c in zip(targets, combined, strict=True)
        ]

    def _digits(self, block: Block, k: Value) -> list[Value]:
        """The window's place along each counting dimension, the last one fastest."""
        digits: list[Value] = []
        stride = 1
        for dimension in reversed(self.batch_dims):
            extent = self.update[dimension]
            digit = k
            if stride > 1:
                digit = block.op("divide", digit, block.constant(DType.S32, stride))
            if stride * extent < self.steps:
                digit = block.op("remainder", digit, block.constant(DType.S32, extent))
            if extent == 1:
                digit = block.constant(DType.S32, 0)
            digits.append(digit)
            stride *= extent
        return digits[::-1]

    def _starts(
        self, block: Block, indices: Value, digits: list[Value]
    ) -> tuple[list[Value], Value | None]:
        """Where the window starts in the target, and whether it lies inside (None: surely)."""
        start: dict[int, Value] = {}
        inside: Value | None = None
        one = [1] * len(self.indices)
        for number, dimension in enumerate(self.scattered):
            at = list(digits)
            if self.vector_dim < len(self.indices):
                at.insert(self.vector_dim, block.constant(DType.S32, number))
            found = block.bitcast(block.dynamic_slice(indices, at, one), ())
            found = block.convert(found, self.index_type)
            start[dimension] = found
            limit = block.constant(self.index_type, self.target[dimension] - self.window[dimension])
            fits = block.op(
                "and",
                block.compare("GE", found, block.constant(self.index_type, 0)),
                block.compare("LE", found, limit),
            )
            inside = fits if inside is None else block.op("and", inside, fits)
        for dimension, index_dim in self.batched.items():
            # Positions among the indices' own dimensions, the vector dimension left out.
            position = index_dim - (index_dim > self.vector_dim)
            start[dimension] = block.convert(digits[position], self.index_type)
        zero = block.constant(self.index_type, 0)
        return [start.get(d, zero) for d in range(len(self.target))], inside
