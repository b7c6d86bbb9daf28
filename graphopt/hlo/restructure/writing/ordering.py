"""Order that replacements need: whoever reads a buffer runs before it is overwritten.

An operation that stood for many reads at once becomes several instructions. Where XLA relied on the
operation as a whole coming before the writer of a buffer that it reads, each of the new readers
needs a control dependency of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.errors import UnsupportedModuleError
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.module.index import LOCAL_ID, ComputationIndex, index
from graphopt.hlo.module.proto import HloComputationProto
from graphopt.hlo.module.toposort import topological_order


def order_readers(proto: Any, known: Mapping[int, ComputationIndex]) -> InPlaceAnalysis:
    """Adds the missing control dependencies to a module; returns it indexed and analysed.

    Args:
        proto: ``HloModuleProto``, changed in place.
        known: computations that may be in it as they were elsewhere (see `index`).

    Raises:
        UnsupportedModuleError: rule ``in-place-order``: a reader needs the writer's result.
    """
    analysis = InPlaceAnalysis(index(proto, known))
    if not analysis.broken:
        return analysis
    touched = set()
    for hazard, reader in analysis.broken:
        computation = analysis.module.computations[hazard.computation]
        before = computation.by_id[reader].proto.id
        writer = computation.by_id[hazard.writer].proto
        if before not in writer.control_predecessor_ids:
            writer.control_predecessor_ids.append(before)
        touched.add(hazard.computation)
    for computation in proto.computations:
        if computation.id in touched:
            sort_instructions(computation)
    return InPlaceAnalysis(index(proto, known))


def sort_instructions(computation: Any) -> None:
    """Puts a computation's instructions in topological order, as far as possible the one they have.

    Raises:
        UnsupportedModuleError: rule ``in-place-order``: there is none.
    """
    instructions = list(computation.instructions)
    position = {i.id & LOCAL_ID: p for p, i in enumerate(instructions)}
    before = {
        p: {position[o & LOCAL_ID] for o in (*i.operand_ids, *i.control_predecessor_ids)}
        for p, i in enumerate(instructions)
    }
    order = topological_order(before, lambda p: p)
    if len(order) < len(instructions):
        raise UnsupportedModuleError(
            what="a replacement would read a buffer after it is overwritten",
            where=computation.name,
            fix="nothing to do: the module keeps XLA's default",
            rule="in-place-order",
        )
    out = HloComputationProto()
    out.CopyFrom(computation)
    out.ClearField("instructions")
    out.instructions.extend([instructions[p] for p in order])
    computation.CopyFrom(out)
