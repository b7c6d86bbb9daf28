"""Large modules made of copies of a small one, to measure how costs grow with size."""

from __future__ import annotations

from typing import Any

from graphopt.hlo.module.index import Role, parse
from graphopt.hlo.module.proto import DType


def repeat_module(data: bytes, copies: int) -> bytes:
    """A module whose entry computes the entry of `data` several times, with all loops and fusions.

    The copies share the parameters; the results are tuples in a tuple.

    Args:
        data: serialised module as the hook receives it.
        copies: how many times, at least 1.
    """
    source = parse(data)
    out = type(source.proto)()
    out.CopyFrom(source.proto)
    out.ClearField("computations")
    out.ClearField("schedule")
    entry_id = source.proto.entry_computation_id
    stride = max(source.computations) + 1
    for copy in range(copies):
        for computation in source.computations.values():
            if computation.id != entry_id:
                proto = out.computations.add()
                proto.CopyFrom(computation.proto)
                _rename(proto, copy, stride)
    _add_entry(out, source, copies, stride)
    return bytes(out.SerializeToString())


def _rename(proto: Any, copy: int, stride: int) -> None:
    proto.name = f"{proto.name}.copy{copy}"
    proto.id += copy * stride
    for instruction in proto.instructions:
        instruction.name = f"{instruction.name}.copy{copy}"
        called = [c + copy * stride for c in instruction.called_computation_ids]
        instruction.called_computation_ids[:] = called


def _add_entry(out: Any, source: Any, copies: int, stride: int) -> None:
    original = next(c for c in source.computations.values() if c.role is Role.ENTRY)
    entry = out.computations.add()
    entry.name, entry.id = original.proto.name, original.id + copies * stride
    out.entry_computation_id = entry.id
    entry.program_shape.CopyFrom(original.proto.program_shape)
    parameters: dict[int, int] = {}
    roots = []
    for copy in range(copies):
        local: dict[int, int] = {}
        for instruction in original.instructions:
            number = instruction.proto.parameter_number
            if instruction.opcode == "parameter" and number in parameters:
                local[instruction.local] = parameters[number]
                continue
            proto = entry.instructions.add()
            proto.CopyFrom(instruction.proto)
            proto.name = f"{proto.name}.copy{copy}"
            proto.id = len(entry.instructions)
            proto.operand_ids[:] = [local[o] for o in instruction.operands]
            proto.control_predecessor_ids[:] = [local[o] for o in instruction.control]
            proto.called_computation_ids[:] = [c + copy * stride for c in instruction.called]
            local[instruction.local] = proto.id
            if instruction.opcode == "parameter":
                parameters[number] = proto.id
        roots.append(local[original.root])
    _add_root(entry, original, roots)


def _add_root(entry: Any, original: Any, roots: list[int]) -> None:
    shape = original.by_id[original.root].shape
    root = entry.instructions.add()
    root.name, root.opcode, root.id = "all_copies", "tuple", len(entry.instructions)
    root.operand_ids.extend(roots)
    root.shape.element_type = DType.TUPLE
    for _ in roots:
        root.shape.tuple_shapes.add().CopyFrom(shape)
    entry.root_id = root.id
    entry.program_shape.result.CopyFrom(root.shape)
