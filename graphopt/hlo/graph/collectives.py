"""Where a program waits for its other devices, and in which order.

A collective returns once every device has come to it. Devices that come to two collectives in different
orders wait for each other for ever, or exchange the wrong values; on the CPU all collectives of a program
may even share one channel, so that nothing but their order tells them apart. All devices run one module,
so what is promised here is that a rewrite keeps the order of the schedule.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, device_count
from graphopt.hlo.module.opcodes import COLLECTIVES
from graphopt.hlo.module.proto import HloInstructionProto
from graphopt.hlo.module.schedule import read_schedule

Trace = tuple[object, ...]
"""What a computation does together with other devices, in order; nested for loops and branches."""

_CALLERS: Final = frozenset({"while", "conditional", "call"})

_DROPPED_FIELDS: Final = (
    "name", "metadata", "id", "operand_ids", "control_predecessor_ids", "called_computation_ids",
    "original_value", "frontend_attributes",
)  # fmt: skip


def meetings(module: ModuleIndex) -> dict[int, list[int]]:
    """Local ids of the instructions that wait for other devices, by computation, in schedule order.

    Those are collectives, and loops, branches and calls with one inside. Beside them stand, in modules with
    collectives, operations that meet the outside world: they may wait for another device in ways that
    no module shows. Empty for a program of one device.
    """
    if not _has_collectives(module):
        return {}
    found: dict[int, list[int]] = {}
    places = read_schedule(module)
    for computation in module.graph_computations():  # callees first
        here = [i.local for i in computation.instructions if _meets(i, found)]
        if here:
            found[computation.id] = sorted(here, key=places[computation.id].__getitem__)
    return found


def _has_collectives(module: ModuleIndex) -> bool:
    if module.proto.HasField("device_assignment") and device_count(module) == 1:
        return False
    return any(
        instruction.opcode in COLLECTIVES
        for computation in module.graph_computations()
        for instruction in computation.instructions
    )


def _meets(instruction: Instruction, found: dict[int, list[int]]) -> bool:
    opcode = instruction.opcode
    if opcode in COLLECTIVES or opcode in ("infeed", "outfeed"):
        return True
    if opcode == "custom-call":
        return bool(instruction.proto.custom_call_has_side_effect)
    return opcode in _CALLERS and any(callee in found for callee in instruction.called)


def trace(module: ModuleIndex) -> Trace:
    """What the module does together with other devices: equal traces meet in one order.

    Names and numbers of instructions do not count, and neither do calls around something.
    """
    found = meetings(module)
    if not found:
        return ()
    return _trace(module, found, module.computations[module.proto.entry_computation_id])


def _trace(module: ModuleIndex, found: dict[int, list[int]], around: ComputationIndex) -> Trace:
    out: list[object] = []
    for local in found.get(around.id, ()):
        instruction = around.by_id[local]
        if instruction.opcode not in _CALLERS:
            out.append(_attributes(instruction))
            continue
        inside = [_trace(module, found, module.computations[c]) for c in instruction.called]
        if instruction.opcode == "call":
            out += inside[0]
        else:
            out.append((instruction.opcode, *inside))
    return tuple(out)


def _attributes(instruction: Instruction) -> bytes:
    scratch = HloInstructionProto()
    scratch.CopyFrom(instruction.proto)
    for name in _DROPPED_FIELDS:
        scratch.ClearField(name)
    return bytes(scratch.SerializeToString(deterministic=True))
