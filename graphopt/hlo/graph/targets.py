"""Whose buffers an instruction, a fusion or a whole module says it writes its results into."""

from __future__ import annotations

from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex
from graphopt.hlo.module.proto import InputOutputAliasProto

Path = tuple[int, ...]


def donated_results(module: ModuleIndex) -> list[tuple[int, Path, Path]]:
    """(parameter number, path in it, path in the result) of results that take a donated buffer."""
    aliases = InputOutputAliasProto.FromString(module.proto.input_output_alias)
    return [
        (int(a.parameter_number), tuple(a.parameter_shape_index), tuple(a.output_shape_index))
        for a in aliases.entries
    ]


def fusion_targets(fused: ComputationIndex) -> list[int]:
    """Parameter numbers that a fused computation updates in place (XLA's rule for fusions)."""
    root = fused.by_id[fused.root]
    outputs = root.operands if root.opcode == "tuple" else [fused.root]
    return [number for output in outputs for number in updated_parameters(fused, output)]


def updated_parameters(fused: ComputationIndex, output: int) -> list[int]:
    """Numbers of the parameters that a fused computation updates in place as one of its outputs."""
    source = skip_bitcasts(fused, output)
    if source.opcode not in ("dynamic-update-slice", "scatter"):
        return []
    count = 1 if source.opcode != "scatter" else (len(source.operands) - 1) // 2
    targets = (skip_bitcasts(fused, operand) for operand in source.operands[:count])
    return [int(t.proto.parameter_number) for t in targets if t.opcode == "parameter"]


def skip_bitcasts(computation: ComputationIndex, local: int) -> Instruction:
    """The instruction behind a chain of bitcasts."""
    instruction = computation.by_id[local]
    while instruction.opcode == "bitcast":
        instruction = computation.by_id[instruction.operands[0]]
    return instruction


def declared_aliases(instruction: Instruction) -> list[tuple[int, Path]]:
    """(operand number, path) pairs that an instruction says it overwrites."""
    return [
        (int(alias.operand_index), tuple(alias.operand_shape_index))
        for alias in instruction.proto.output_operand_aliasing
    ]
