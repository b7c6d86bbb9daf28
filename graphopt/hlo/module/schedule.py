"""The schedule: in which order the instructions of each computation are executed.

XLA decides it before the hook is asked, and what the hook answers must bring one along. Buffers are shared
and work is handed to threads by it, so a rewritten module keeps XLA's order wherever it can
(`Source.position`).
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from graphopt.hlo.module.index import LOCAL_ID, ModuleIndex
from graphopt.hlo.module.proto import HloModuleProto

IN_ORDER_THUNKS: Final = 8
"""Thunks of a sequence that XLA runs one after the other whatever they are (``thunk_executor.h``:
``execute_sequential_num_thunks_threshold``)."""


def read_schedule(module: ModuleIndex) -> dict[int, dict[int, int]]:
    """Per graph computation its id -> local id -> place; the order in the module if it has no schedule."""
    given = {
        entry.key: [i & LOCAL_ID for i in entry.value.instruction_ids]
        for entry in module.proto.schedule.sequences
    }
    places = {}
    for computation in module.graph_computations():
        order = given.get(computation.id, [])
        if computation.by_id.keys() != set(order):
            order = list(computation.by_id)
        places[computation.id] = {local: place for place, local in enumerate(order)}
    return places


def write_schedule(proto: Any) -> None:
    """Schedules the instructions of a ``HloModuleProto`` in the order in which they stand in it."""
    proto.ClearField("schedule")
    for computation in proto.computations:
        if computation.is_fusion_computation:
            continue
        entry = proto.schedule.sequences.add()
        entry.key = computation.id
        entry.value.instruction_ids.extend([i.id for i in computation.instructions])


def scheduled(data: bytes) -> bytes:
    """Module bytes with a schedule: their own, or the order in which the instructions stand there.

    Bytes that are no module come back as they are: XLA says what is wrong with them.
    """
    try:
        proto = HloModuleProto.FromString(data)
    except DecodeError:
        return data
    if proto.HasField("schedule"):
        return data
    write_schedule(proto)
    return bytes(proto.SerializeToString())
