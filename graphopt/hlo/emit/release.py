"""Modules whose donated buffers a rewrite loses: their parameters are the caller's, and stay as they are.

Before jaxlib 0.11 a module that the hook hands back no longer holds its donated buffers. XLA's copy insertion
relied on them: an update in place may write into a parameter, and a result may be a parameter itself. Such
parameters are copied first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.graph.targets import donated_results
from graphopt.hlo.module.index import LOCAL_ID, ModuleIndex, Role, index, leaf_paths, leaves
from graphopt.hlo.module.proto import DTYPE_BYTES, HloInstructionProto, HloModuleProto
from graphopt.hlo.module.schedule import write_schedule


@dataclass(frozen=True)
class Released:
    """A module without donated buffers.

    Attributes:
        data: serialised ``HloModuleProto``.
        donated_bytes: size of the buffers that are no longer donated.
        copied_bytes: size of the parameters that are copied first.
    """

    data: bytes
    donated_bytes: int
    copied_bytes: int


def release(data: bytes) -> Released:
    """Takes the donated buffers from a module and copies the parameters that it would overwrite.

    Args:
        data: serialised ``HloModuleProto``.

    Raises:
        ModuleFormatError: the bytes are no module.
    """
    proto = HloModuleProto.FromString(data)
    module = index(proto)
    numbers = {number for number, _, _ in donated_results(module)}
    proto.ClearField("input_output_alias")
    proto.ClearField("buffer_donor")
    entry = next(c for c in module.computations.values() if c.role is Role.ENTRY)
    shapes = {
        i.proto.parameter_number: i.shape for i in entry.instructions if i.opcode == "parameter"
    }
    taken = set(_taken(module))
    copies = _copy_first(entry.proto, taken)
    if proto.HasField("schedule"):
        _schedule_copies(proto, copies)
    else:
        write_schedule(proto)
    return Released(
        bytes(proto.SerializeToString()),
        sum(_bytes(shapes[number]) for number in numbers),
        sum(_bytes(entry.by_id[local].shape) for local in taken),
    )


def _taken(module: ModuleIndex) -> Iterator[int]:
    """Local ids of parameters whose buffer the module would write into or hand out as a result."""
    analysis = InPlaceAnalysis(module)
    entry = next(c for c in module.computations.values() if c.role is Role.ENTRY)
    written = (hazard.source[0] for hazard in analysis.hazards[entry.id])
    root = entry.by_id[entry.root]
    handed_out = (analysis.resolve(entry, entry.root, path)[0] for path in leaf_paths(root.shape))
    for local in (*written, *handed_out):
        if entry.by_id[local].opcode == "parameter":
            yield local


def _copy_first(entry: Any, taken: set[int]) -> dict[int, Any]:
    """Puts a copy behind each such parameter and lets everything else read it; returns id -> copy."""
    if not taken:
        return {}
    free = max(i.id & LOCAL_ID for i in entry.instructions) + 1
    copies: dict[int, Any] = {}
    written = []
    for instruction in entry.instructions:
        local = instruction.id & LOCAL_ID
        if local in taken:
            copies[local] = _copy_of(instruction, free)
            free += 1
    for instruction in entry.instructions:
        moved = [_redirected(i, copies) for i in instruction.operand_ids]
        del instruction.operand_ids[:]
        instruction.operand_ids.extend(moved)
        written.append(instruction)
        copy = copies.get(instruction.id & LOCAL_ID)
        if copy is not None:
            written.append(copy)
    root = _redirected(entry.root_id, copies)
    kept = [HloInstructionProto.FromString(i.SerializeToString()) for i in written]
    del entry.instructions[:]
    entry.instructions.extend(kept)
    entry.root_id = root
    return copies


def _schedule_copies(proto: Any, copies: dict[int, Any]) -> None:
    """Each copy runs where its parameter stands in the schedule."""
    for entry in proto.schedule.sequences:
        if entry.key != proto.entry_computation_id:
            continue
        order = []
        for instruction_id in entry.value.instruction_ids:
            order.append(instruction_id)
            copy = copies.get(instruction_id & LOCAL_ID)
            if copy is not None:
                order.append(copy.id)
        del entry.value.instruction_ids[:]
        entry.value.instruction_ids.extend(order)


def _copy_of(parameter: Any, local: int) -> Any:
    copy = HloInstructionProto(opcode="copy", name=f"{parameter.name}.released")
    copy.id = (parameter.id & ~LOCAL_ID) | local
    copy.shape.CopyFrom(parameter.shape)
    copy.operand_ids.append(parameter.id)
    return copy


def _redirected(instruction_id: int, copies: dict[int, Any]) -> int:
    copy = copies.get(instruction_id & LOCAL_ID)
    return instruction_id if copy is None else int(copy.id)


def _bytes(shape: Any) -> int:
    return sum(prod(s.dimensions) * DTYPE_BYTES.get(s.element_type, 1) for s in leaves(shape))
