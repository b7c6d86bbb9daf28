"""XLA's small calls: computations that it emits as one native function."""

from __future__ import annotations

from typing import Any, Final

from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, Role


def is_small_call(instruction: Instruction) -> bool:
    """True for a ``call`` that XLA emits as one native function."""
    return is_small_call_proto(instruction.proto)


def is_small_call_proto(proto: Any) -> bool:
    """The same of an ``HloInstructionProto``."""
    return proto.opcode == "call" and any(
        entry.key == SMALL_CALL and entry.value == "true" for entry in proto.frontend_attributes.map
    )


def is_inlined_call_body(module: ModuleIndex, computation: ComputationIndex) -> bool:
    """True for what such a call (`is_inlined_call`) calls."""
    if computation.role is not Role.CALLED or computation.caller is None:
        return False
    local, owner = computation.caller
    return is_inlined_call(module, module.computations[owner].by_id[local])


def is_inlined_call(module: ModuleIndex, instruction: Instruction) -> bool:
    """True for a small call around exactly one while loop with the same operand."""
    if not is_small_call(instruction):
        return False
    callee = module.computations[instruction.called[0]]
    root = callee.by_id[callee.root]
    return (
        root.opcode == "while"
        and len(callee.instructions) == 2
        and not any(i.control for i in callee.instructions)
    )


SMALL_CALL: Final = "xla_cpu_small_call"
"""Frontend attribute that makes XLA:CPU emit a called computation as one native function."""
