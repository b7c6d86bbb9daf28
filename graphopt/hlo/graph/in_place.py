"""Which instructions overwrite a buffer that others read: XLA's in-place promises, read back.

When the hook sees a module, XLA's copy insertion has run. Loops carry their values in one buffer per
carried value, ``dynamic-update-slice`` and ``scatter`` write into their operand's buffer, and XLA
has proved that every other reader of such a buffer comes first. A rewrite must keep that order.

A **hazard** is one such promise: a `source` value, the `writer` that overwrites its buffer, and the
other `readers` of it, all in one computation. `find_hazards` derives them from a module with XLA's own
aliasing rules (``AliasInfo::GetInPlaceInputOutputPairs`` and the must-alias rule of while loops);
`broken_hazards` says which of them a module's dependencies do not guarantee. The graph builder runs
both on the incoming module and the verifier runs both on the outgoing one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from graphopt.hlo.graph.buffers import Buffers, Value
from graphopt.hlo.graph.result_buffers import ResultBuffers
from graphopt.hlo.graph.targets import Path, declared_aliases, fusion_targets
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, leaf_paths
from graphopt.hlo.module.opcodes import COLLECTIVES
from graphopt.hlo.module.proto import DType

_ALIASES: Final = frozenset({"tuple", "get-tuple-element", "bitcast", "parameter", "constant"})
"""Opcodes that name a buffer without reading it."""


_TUPLES: Final = COLLECTIVES | frozenset(
    "tuple parameter get-tuple-element while conditional call custom-call fusion reduce sort scatter "
    "rng-bit-generator after-all infeed outfeed opt-barrier map reduce-window topk".split()
)
"""Opcodes whose result may be a tuple."""


@dataclass(frozen=True)
class Hazard:
    """One in-place promise inside one computation.

    Attributes:
        computation: computation id.
        source: the value whose buffer is overwritten.
        writer: local id of the instruction that overwrites it.
        readers: local ids of the other instructions that read it; all must run before the writer.
    """

    computation: int
    source: Value
    writer: int
    readers: frozenset[int]


class InPlaceAnalysis:
    """Alias facts of one module.

    Attributes:
        module: that was analysed.
        hazards: computation id -> its hazards.
        reads: computation id -> local instruction id -> values that it reads.
    """

    def __init__(self, module: ModuleIndex) -> None:
        """Analyses all graph computations, callees first."""
        self.module = module
        self.hazards: dict[int, list[Hazard]] = {}
        self.reads: dict[int, dict[int, frozenset[Value]]] = {}
        self._buffers = Buffers(module)
        self._written_parameters: dict[int, set[tuple[int, Path]]] = {}
        self._fusion_targets: dict[int, list[int]] = {}
        writers: dict[int, dict[Value, set[int]]] = {}
        for computation in module.graph_computations():
            writers[computation.id] = self._analyse(computation)
        results = ResultBuffers(module, self._buffers, self._targets)
        for computation in module.graph_computations():
            own = writers[computation.id]
            read = set().union(*self.reads[computation.id].values())
            for value, made in results.overwritten(computation, read):
                own.setdefault(value, set()).update(made)
            self.hazards[computation.id] = _collect(computation.id, own, self.reads[computation.id])

    @cached_property
    def broken(self) -> list[tuple[Hazard, int]]:
        """See `broken_hazards`."""
        return broken_hazards(self)

    def resolve(self, computation: ComputationIndex, local: int, path: Path = ()) -> Value:
        """The value whose buffer instruction `local` denotes at `path`, through all aliases."""
        return self._buffers.resolve(computation, local, path)

    def _analyse(self, computation: ComputationIndex) -> dict[Value, set[int]]:
        """Notes what a computation reads and writes; returns value -> what overwrites it in place."""
        writers: dict[Value, set[int]] = {}
        reads: dict[int, frozenset[Value]] = {}
        for instruction in computation.instructions:
            local = instruction.local
            for operand, path in self._targets(computation, instruction):
                target = self.resolve(computation, instruction.operands[operand], path)
                writers.setdefault(target, set()).add(local)
            if instruction.opcode not in _ALIASES:
                reads[local] = self._reads_of(computation, instruction)
        written = {
            (int(computation.by_id[local].proto.parameter_number), path)
            for local, path in writers
            if computation.by_id[local].opcode == "parameter"
        }
        self._written_parameters[computation.id] = written
        self.reads[computation.id] = reads
        return writers

    def _reads_of(
        self, computation: ComputationIndex, instruction: Instruction
    ) -> frozenset[Value]:
        values = set()
        for local in instruction.operands:
            operand = computation.by_id[local]
            if operand.opcode not in _TUPLES or operand.shape.element_type != DType.TUPLE:
                values.add(self.resolve(computation, local))
                continue
            for path in leaf_paths(operand.shape):
                values.add(self.resolve(computation, local, path))
        return frozenset(values)

    def _targets(
        self, computation: ComputationIndex, instruction: Instruction
    ) -> list[tuple[int, Path]]:
        """(operand number, path) pairs whose buffers an instruction overwrites."""
        opcode = instruction.opcode
        if opcode == "dynamic-update-slice":
            return [(0, ())]
        if opcode == "scatter":
            return [(i, ()) for i in range((len(instruction.operands) - 1) // 2)]
        if opcode == "fusion":
            targets = [(i, ()) for i in self.fusion_targets(instruction.called[0])]
            return targets + declared_aliases(instruction)
        if opcode == "ragged-all-to-all":
            return [(1, ())]
        if opcode == "custom-call":
            return declared_aliases(instruction)
        if opcode == "while":
            return self._loop_targets(computation, instruction)
        if opcode == "conditional":
            return self._branch_targets(computation, instruction)
        if opcode == "call":
            callee = instruction.called[0]
            return list(self._written_parameters[callee])
        return []

    def _loop_targets(
        self, computation: ComputationIndex, loop: Instruction
    ) -> list[tuple[int, Path]]:
        body = self.module.computations[loop.called[0]]
        kept = self._buffers.kept(computation, loop)
        written = {path for _, path in self._written_parameters[body.id]}
        return [(0, path) for path in leaf_paths(loop.shape) if path in written or path not in kept]

    def _branch_targets(
        self, computation: ComputationIndex, conditional: Instruction
    ) -> list[tuple[int, Path]]:
        """Written branch parameters, and those that only some branches hand on as a result.

        A handed-on parameter shares its buffer with the result, which the other branches write.
        """
        targets: set[tuple[int, Path]] = set()
        for number, branch_id in enumerate(conditional.called):
            targets |= {(number + 1, path) for _, path in self._written_parameters[branch_id]}
        for path in leaf_paths(conditional.shape):
            handed_on = self._buffers.handed_on(computation, conditional, path)
            if None not in handed_on and len(set(handed_on)) == 1:
                continue
            for number, branch_id in enumerate(conditional.called):
                if handed_on[number] is not None:
                    branch = self.module.computations[branch_id]
                    targets.add((number + 1, self.resolve(branch, branch.root, path)[1]))
        return sorted(targets)

    def fusion_targets(self, computation_id: int) -> list[int]:
        """Operand numbers that a fusion overwrites: its root updates that parameter in place."""
        found = self._fusion_targets.get(computation_id)
        if found is None:
            found = fusion_targets(self.module.computations[computation_id])
            self._fusion_targets[computation_id] = found
        return found


def _collect(
    computation: int, writers: dict[Value, set[int]], reads: dict[int, frozenset[Value]]
) -> list[Hazard]:
    if not writers:
        return []
    readers: dict[Value, set[int]] = {}
    for local, values in reads.items():
        for value in values:
            if value in writers:
                readers.setdefault(value, set()).add(local)
    return [
        Hazard(computation, source, writer, frozenset(readers.get(source, set()) - {writer}))
        for source, all_writers in writers.items()
        for writer in sorted(all_writers)
    ]


def reachable_writers(computation: ComputationIndex, writers: list[int]) -> dict[int, int]:
    """For each instruction, the set of `writers` that depend on it, as a bit set.

    Bit k of the result for instruction i is set if ``writers[k]`` follows i by data or control
    dependencies (or is i itself).
    """
    reach: dict[int, int] = {}
    for bit, writer in enumerate(writers):
        reach[writer] = reach.get(writer, 0) | (1 << bit)
    for instruction in reversed(computation.instructions):
        bits = reach.get(instruction.local, 0)
        if not bits:
            continue
        for before in (*instruction.operands, *instruction.control):
            reach[before] = reach.get(before, 0) | bits
    return reach


def broken_hazards(analysis: InPlaceAnalysis) -> list[tuple[Hazard, int]]:
    """Hazards with a reader that is not ordered before the writer, with that reader's local id.

    Requires instructions in an order that respects control dependencies as well as operands.
    """
    broken = []
    for computation in analysis.module.graph_computations():
        hazards = analysis.hazards[computation.id]
        writers = sorted({hazard.writer for hazard in hazards})
        bit = {writer: 1 << i for i, writer in enumerate(writers)}
        reach = reachable_writers(computation, writers)
        for hazard in hazards:
            for reader in hazard.readers:
                if not reach.get(reader, 0) & bit[hazard.writer]:
                    broken.append((hazard, reader))
    return broken
