"""Builds a `Graph` from module bytes: inline fusions, merge duplicates, order, index.

The default decisions are read back on the way: a fusion's root is a root, its other instructions are
fused, its unit is the loop generator with XLA's partitions or the kernel library, and a ``while``
inside one of XLA's own small calls is native.
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.errors import UnsupportedModuleError
from graphopt.hlo.graph.columns import make_graph
from graphopt.hlo.graph.drafts import Draft, Drafts
from graphopt.hlo.graph.graph import FROZEN_FUSED, FROZEN_ROOT, Graph
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.graph.targets import fusion_targets, skip_bitcasts
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import (
    ComputationIndex,
    Instruction,
    ModuleIndex,
    check_supported,
    parse,
)
from graphopt.hlo.module.layouts import memory_order
from graphopt.hlo.module.opcodes import OP_BY_NAME, SIDE_EFFECTS, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.module.small_calls import is_inlined_call, is_inlined_call_body, is_small_call
from graphopt.hlo.module.toposort import topological_order
from graphopt.machine import Machine, Unit, UnitKind, probe

_OPAQUE_CONSUMERS: Final = frozenset(
    "tuple while call conditional custom-call scatter sort copy dynamic-update-slice".split()
)
"""Top-level opcodes whose operands keep a buffer of their own (never merged with an equal value)."""


def build_graph(
    data: bytes, machine: Machine | None = None, *, allow_donation: bool = False
) -> Graph:
    """The graph of a serialised HLO module as the CPU hook receives it.

    Args:
        data: ``HloModuleProto`` bytes at the end of XLA:CPU's HLO passes.
        machine: whose execution units to decide over; this machine by default.
        allow_donation: take modules with donated inputs; before jaxlib 0.11 a rewrite loses the donation.

    Raises:
        ModuleFormatError: the bytes are no module.
        UnsupportedModuleError: a module that graphopt leaves alone; `rule` says why.
    """
    module = parse(data)
    check_supported(module, allow_donation=allow_donation)
    return build_from_module(module, machine or probe())


def build_from_module(module: ModuleIndex, machine: Machine) -> Graph:
    """The graph of a parsed, supported module (see `build_graph`)."""
    return build_over(module, machine.units)


def build_over(module: ModuleIndex, units: tuple[Unit, ...]) -> Graph:
    """The graph of a parsed, supported module, to be decided over some execution units."""
    return build_analysed(InPlaceAnalysis(module), units)


def build_analysed(analysis: InPlaceAnalysis, units: tuple[Unit, ...]) -> Graph:
    """The same, where the module's in-place promises are known already."""
    return make_graph(Builder(analysis).run(), units)


class Builder:
    """Turns instructions into `Draft` nodes, one computation after the other."""

    def __init__(self, analysis: InPlaceAnalysis) -> None:
        """Takes a module with its in-place promises.

        Raises:
            UnsupportedModuleError: rule ``in-place-order``: a promise we cannot derive from the
                module's dependencies, so it would not survive a rewrite.
        """
        self.module = module = analysis.module
        self.analysis = analysis
        if analysis.broken:
            hazard, reader = analysis.broken[0]
            owner = module.computations[hazard.computation]
            raise UnsupportedModuleError(
                what=f"{owner.by_id[reader].name} reads a buffer that "
                f"{owner.by_id[hazard.writer].name} overwrites, with no order between them",
                where=module.proto.name,
                fix="nothing to do: the module keeps XLA's default",
                rule="in-place-order",
            )
        self.made = Drafts(module, self.analysis)
        self.drafts, self.values = self.made.drafts, self.made.values
        self._merged: dict[tuple[Any, ...], int | dict[bytes, int]] = {}

    def run(self) -> Drafts:
        """Builds and orders the drafts of every computation."""
        for computation in self.module.graph_computations():
            if is_inlined_call_body(self.module, computation):
                continue
            first = len(self.drafts)
            self.made.owners.append(computation)
            self._add_computation(computation)
            live = self._live(computation, first)
            self.made.order.append(self._ordered(computation, live))
        return self.made

    def _add_computation(self, computation: ComputationIndex) -> None:
        pinned = self._pinned(computation)
        for instruction in computation.instructions:
            local = instruction.local
            mergeable = local not in pinned and not instruction.control
            body = self._inlinable(instruction)
            if body is not None:
                draft = self._inline_fusion(computation, instruction, body, mergeable)
            elif is_inlined_call(self.module, instruction):
                draft = self._inline_call(computation, instruction)
            else:
                draft = self._add_plain(computation, instruction, mergeable)
            self.values[computation.id, local] = draft
            for predecessor in instruction.control:
                before = self.values[computation.id, predecessor]
                self.drafts[draft].control.append(before)
                for node in (before, draft):
                    if OP_BY_NAME[self.drafts[node].opcode].fusible:
                        self._freeze(node, FROZEN_ROOT, "control-dependency")
        for local in pinned:
            self._freeze_chain(self.values[computation.id, local])
        self.made.keep_meetings(computation)

    def _pinned(self, computation: ComputationIndex) -> set[int]:
        """Local ids of values that must keep a buffer of their own.

        Their consumers share or overwrite buffers (tuples of loops and results, in-place updates),
        so two equal values must stay two; bitcasts are looked through.
        """
        pinned = {hazard.writer for hazard in self.analysis.hazards[computation.id]}
        pinned.add(computation.root)
        for instruction in computation.instructions:
            if instruction.opcode in _OPAQUE_CONSUMERS:
                pinned.update(instruction.operands)
            elif instruction.opcode == "fusion":
                body = self.module.computations[instruction.called[0]]
                for number in fusion_targets(body):
                    pinned.add(instruction.operands[number])
        for local in list(pinned):
            instruction = computation.by_id[local]
            while instruction.opcode == "bitcast":
                local = instruction.operands[0]
                pinned.add(local)
                instruction = computation.by_id[local]
            if instruction.control:
                pinned.update(instruction.control)
        return pinned

    def _inlinable(self, instruction: Instruction) -> ComputationIndex | None:
        """The body of a fusion whose instructions can become nodes, else None."""
        if instruction.opcode != "fusion":
            return None
        body = self.module.computations[instruction.called[0]]
        library = instruction.proto.fusion_kind == "kCustom" and backend_config.is_library(
            instruction.proto.backend_config
        )
        if instruction.proto.fusion_kind != "kLoop" and not library:
            return None
        if skip_bitcasts(body, body.root).opcode in ("parameter", "constant"):
            return None
        for inner in body.instructions:
            if inner.opcode == "parameter":
                if inner.shape.element_type == DType.TUPLE:
                    return None
                continue
            op = OP_BY_NAME.get(inner.opcode)
            if op is None or not (op.fusible or (library and op.name == "dot")):
                return None
        return body

    def _inline_fusion(
        self,
        computation: ComputationIndex,
        fusion: Instruction,
        body: ComputationIndex,
        mergeable: bool,
    ) -> int:
        operands = fusion.operands
        mapping: dict[int, int] = {}
        library = fusion.proto.fusion_kind == "kCustom"
        for inner in body.instructions:
            local = inner.local
            if inner.opcode == "parameter":
                mapping[local] = self.values[computation.id, operands[inner.proto.parameter_number]]
                continue
            is_root = local == body.root
            looped = inner.opcode != "constant" and OP_BY_NAME[inner.opcode].fusible
            draft = Draft(
                opcode=inner.opcode,
                instruction=inner,
                operands=tuple([mapping[i] for i in inner.operands]),
                computation=len(self.made.owners) - 1,
                fused=not is_root,
                kind=UnitKind.LOOP if looped else UnitKind.RUNTIME,
                called=inner.called,
                instances=[(body.id, local)],
            )
            self._set_reads(draft, computation, inner, body, operands)
            if is_root:
                draft.kind = UnitKind.LIBRARY if library else UnitKind.LOOP
                draft.threads = (
                    1 if library else backend_config.partition_count(fusion.proto.backend_config)
                )
                draft.config = fusion.proto.backend_config
            mapping[local] = self._add(draft, mergeable if is_root else inner.opcode != "copy")
        self._freeze_updates(body, mapping)
        return mapping[body.root]

    def _set_reads(
        self,
        draft: Draft,
        computation: ComputationIndex,
        inner: Instruction,
        body: ComputationIndex,
        operands: tuple[int, ...],
    ) -> None:
        """Values in memory that an inlined instruction reads, also through fused bitcasts."""
        reads = set()
        for operand_id in inner.operands:
            source = skip_bitcasts(body, operand_id)
            if source.opcode == "parameter":
                reads.add(
                    self.analysis.resolve(computation, operands[source.proto.parameter_number])
                )
        draft.reads = frozenset(reads)

    def _freeze_updates(self, body: ComputationIndex, mapping: dict[int, int]) -> None:
        """Dynamic-update-slices keep the form XLA gave them: in place at the root, else inside."""
        root_source = skip_bitcasts(body, body.root)
        for inner in body.instructions:
            if inner.opcode == "copy" and not self._only_reorders(body, inner, mapping):
                self._freeze_default(mapping[inner.local], "copy")
            if inner.opcode != "dynamic-update-slice":
                continue
            if inner.local != root_source.local:
                self._freeze_default(mapping[inner.local], "out-of-place-update")
                continue
            self._freeze_chain(mapping[body.root], rule="in-place-update")
            self._freeze_chain(mapping[inner.operands[0]], rule="update-target")

    def _only_reorders(
        self, body: ComputationIndex, copy: Instruction, mapping: dict[int, int]
    ) -> bool:
        """True for a copy inside a kernel that changes the order of memory: it keeps no buffers apart."""
        before, after = body.by_id[copy.operands[0]].shape, copy.shape
        return self.drafts[mapping[copy.local]].fused and memory_order(before) != memory_order(
            after
        )

    def _freeze_default(self, node: int, rule: str) -> None:
        self._freeze(node, FROZEN_FUSED if self.drafts[node].fused else FROZEN_ROOT, rule)

    def _freeze_chain(self, node: int, rule: str = "own-buffer") -> None:
        """Freezes a node and, through bitcasts, what it is a view of."""
        while True:
            draft = self.drafts[node]
            self._freeze_default(node, rule)
            if draft.opcode != "bitcast":
                return
            node = draft.operands[0]

    def _freeze(self, node: int, state: int, rule: str) -> None:
        draft = self.drafts[node]
        if draft.frozen is None and OP_BY_NAME[draft.opcode].fusible:
            draft.frozen = (state, rule)

    def _inline_call(self, computation: ComputationIndex, call: Instruction) -> int:
        """One of XLA's small calls around a while loop: the loop itself, with unit native."""
        callee = self.module.computations[call.called[0]]
        loop = callee.by_id[callee.root]
        operand = self.values[computation.id, call.operands[0]]
        draft = Draft(
            opcode="while",
            instruction=loop,
            keep_config=True,
            operands=(operand,),
            computation=len(self.made.owners) - 1,
            fused=False,
            kind=UnitKind.NATIVE,
            called=loop.called,
            instances=[(callee.id, loop.local)],
            reads=self.analysis.reads[computation.id][call.local],
        )
        return self._add(draft, mergeable=False)

    def _add_plain(
        self, computation: ComputationIndex, instruction: Instruction, mergeable: bool
    ) -> int:
        opcode = instruction.opcode
        op = OP_BY_NAME[opcode]
        wrappable = op.fusible and op.kind is not OpKind.STRUCTURE and opcode != "copy"
        local = instruction.local
        draft = Draft(
            opcode=opcode,
            instruction=instruction,
            keep_config=not wrappable,
            operands=tuple([self.values[computation.id, i] for i in instruction.operands]),
            computation=len(self.made.owners) - 1,
            fused=False,
            kind=UnitKind.LOOP if wrappable else UnitKind.RUNTIME,
            called=instruction.called,
            reads=self.analysis.reads[computation.id].get(local, frozenset()),
            bare=wrappable,
            instances=[(computation.id, local)],
        )
        if wrappable:
            draft.config = instruction.proto.backend_config
            draft.threads = backend_config.partition_count(instruction.proto.backend_config)
        if is_small_call(instruction):
            draft.kind = UnitKind.NATIVE
        node = self._add(draft, mergeable and opcode not in SIDE_EFFECTS and opcode != "copy")
        if opcode == "dynamic-update-slice":
            self._freeze(node, FROZEN_ROOT, "in-place-update")
        return node

    def _add(self, draft: Draft, mergeable: bool) -> int:
        """Adds a node, or finds the equal one already there."""
        drafts, node = self.drafts, len(self.drafts)
        if mergeable and draft.opcode != "parameter":
            # Attributes cost the most to compare: those of nodes without operands tell them apart.
            key = (
                draft.computation, draft.opcode, draft.operands or draft.attributes, draft.fused,
                draft.called, draft.config, draft.kind,
            )  # fmt: skip
            alike = self._merged.setdefault(key, node)
            if alike != node:
                if isinstance(alike, int):
                    alike = self._merged[key] = {drafts[alike].attributes: alike}
                found = alike.setdefault(draft.attributes, node)
                if found != node:
                    drafts[found].reads |= draft.reads
                    drafts[found].instances += draft.instances
                    return found
        drafts.append(draft)
        return node

    def _live(self, computation: ComputationIndex, first: int) -> list[int]:
        """Drafts of a computation that its root, its parameters or a side effect needs."""
        drafts = self.drafts
        keep = [False] * (len(drafts) - first)
        keep[self.values[computation.id, computation.root] - first] = True
        for node in range(len(drafts) - 1, first - 1, -1):
            draft = drafts[node]
            if draft.opcode == "parameter" or draft.opcode in SIDE_EFFECTS:
                keep[node - first] = True
            if keep[node - first]:
                for operand in (*draft.operands, *draft.control):
                    keep[operand - first] = True
        return [first + i for i, kept in enumerate(keep) if kept]

    def _ordered(self, computation: ComputationIndex, live: list[int]) -> list[int]:
        """Topological order with buffer writers as late as possible.

        Beside operands and control edges it respects "reader before writer" of every in-place
        promise. Late writers leave the largest freedom to fuse readers into their consumers.
        """
        alive = set(live)
        before = {node: {*self.drafts[node].operands, *self.drafts[node].control} for node in live}
        writers = set()
        for hazard in self.analysis.hazards[computation.id]:
            writer = self.values[computation.id, hazard.writer]
            writers.add(writer)
            if writer in alive:
                readers = {self.values[computation.id, reader] for reader in hazard.readers}
                before[writer] |= (readers & alive) - {writer}
        if not writers and all(max(earlier, default=-1) < n for n, earlier in before.items()):
            return live  # nodes are numbered in such an order
        order = topological_order(before, lambda node: (node in writers, node))
        if len(order) != len(live):
            raise UnsupportedModuleError(
                what=f"merging duplicates of {computation.proto.name} contradicts its in-place order",
                where=self.module.proto.name,
                fix="nothing to do: the module keeps XLA's default",
                rule="in-place-order",
            )
        return order
