"""Digests of HLO computations that ignore names, ids and metadata."""

from __future__ import annotations

import hashlib
from typing import Final

from graphopt.hlo.module import LOCAL_ID, ModuleIndex
from graphopt.hlo.schema import HloInstructionProto

_IGNORED: Final = ("name", "metadata", "id", "operand_ids", "called_computation_ids",
                   "control_predecessor_ids", "original_value")  # fmt: skip


def hash_computation(module: ModuleIndex, computation_id: int) -> bytes:
    """Digest of one computation and all that it calls."""
    computation = module.computations[computation_id]
    digest = hashlib.sha256()
    scratch = HloInstructionProto()
    position: dict[int, int] = {}
    for i, instruction in enumerate(computation.instructions):
        position[instruction.id & LOCAL_ID] = i
        scratch.CopyFrom(instruction)
        for name in _IGNORED:
            scratch.ClearField(name)
        digest.update(scratch.SerializeToString(deterministic=True))
        digest.update(repr([position[o & LOCAL_ID] for o in instruction.operand_ids]).encode())
        for callee in instruction.called_computation_ids:
            digest.update(hash_computation(module, callee))
    digest.update(b"root%d" % position[computation.root])
    return digest.digest()
