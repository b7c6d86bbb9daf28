"""Digests of graphs and computations that ignore names, ids and metadata."""

from __future__ import annotations

import hashlib
from typing import Final

from graphopt.hlo.graph.derived import derives
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.index import ModuleIndex, device_count
from graphopt.hlo.module.proto import HloInstructionProto

_IGNORED: Final = ("name", "metadata", "id", "operand_ids", "called_computation_ids",
                   "control_predecessor_ids", "original_value")  # fmt: skip


def hash_computation(module: ModuleIndex, computation_id: int) -> bytes:
    """Digest of one computation and all that it calls."""
    computation = module.computations[computation_id]
    digest = hashlib.sha256()
    scratch = HloInstructionProto()
    position: dict[int, int] = {}
    for i, instruction in enumerate(computation.instructions):
        position[instruction.local] = i
        scratch.CopyFrom(instruction.proto)
        for name in _IGNORED:
            scratch.ClearField(name)
        digest.update(scratch.SerializeToString(deterministic=True))
        digest.update(repr([position[o] for o in instruction.operands]).encode())
        for callee in instruction.called:
            digest.update(hash_computation(module, callee))
    digest.update(b"root%d" % position[computation.root])
    return digest.digest()


@derives("fingerprint")
def fingerprint(graph: Graph) -> str:
    """Digest of everything about a graph but names, ids and metadata."""
    index_of = {c.id: i for i, c in enumerate(graph.computations)}
    applied: dict[int, bytes] = {}

    def callee(computation_id: int) -> bytes:
        if computation_id in index_of:
            return b"g%d" % index_of[computation_id]
        if computation_id not in applied:
            applied[computation_id] = hash_computation(graph.source.module, computation_id)
        return applied[computation_id]

    digest = hashlib.sha256()
    source = graph.source
    for node, operands in enumerate(graph.operand_lists):
        digest.update(source.attributes(node))
        digest.update(repr((operands, source.config[node])).encode())
        for computation_id in source.called[node]:
            digest.update(callee(computation_id))
    for computation in graph.computations:
        row = (int(computation.role), computation.first, computation.end, computation.root)
        digest.update(repr((*row, computation.caller)).encode())
    for values in (graph.default.fuse, graph.default.join, graph.default.unit):
        digest.update(values.tobytes())
    digest.update(repr([unit.name for unit in graph.units]).encode())
    digest.update(bytes(source.module.proto.input_output_alias))
    if (devices := device_count(source.module)) > 1:
        digest.update(devices.to_bytes(8, "little"))
    return digest.hexdigest()
