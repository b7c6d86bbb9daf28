"""Replacing operations: graph and codes in, a new graph of the restructured module out.

Up to three modules are written on the way. In the first, every operation that is to be replaced stands alone
with its operands in memory; all else is as XLA decided: that is the incoming module itself where the
operations stand alone there (`graphopt.hlo.replace.apart`). In the second it is replaced, and the new
operations stand bare. In the third they are grouped into clusters within the masks. The graph of the
third is an ordinary graph: its default decisions are XLA's own with the replacement in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.emit.verify import check_signature
from graphopt.hlo.graph.build import build_analysed, build_over
from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.module.index import LOCAL_ID, ComputationIndex, index
from graphopt.hlo.module.proto import HloComputationProto
from graphopt.hlo.replace.apart import Apart, set_apart, write_again
from graphopt.hlo.replace.grouping import group
from graphopt.hlo.replace.result import Restructured
from graphopt.hlo.replace.turned import turned
from graphopt.hlo.restructure.rows import pack
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.table import RESTRUCTURES, replacing
from graphopt.hlo.restructure.writing.blocks import Block, ModuleEditor
from graphopt.hlo.restructure.writing.ordering import order_readers
from graphopt.hlo.restructure.writing.values import Value

KEPT_RESULTS = 4
"""Restructured graphs remembered per graph."""

_PURE = frozenset({"tuple", "copy", "constant", "fusion", "reduce-window"})

_WRITERS = frozenset({"while", "dynamic-update-slice", "scatter"})


def settle(graph: Graph, decisions: Decisions) -> tuple[Graph, Decisions]:
    """The graph whose nodes are executed, and the decisions on it: the same two without replacements."""
    codes = replacing(decisions.restructure)
    if not codes.any():
        return graph, decisions
    after = apply_restructures(graph, codes)
    return after.graph, after.carry(decisions)


def restructured(graph: Graph, codes: NDArray[np.int8]) -> Graph:
    """The graph after replacing operations (see `apply_restructures`, which also says what came whence)."""
    return apply_restructures(graph, codes).graph


def apply_restructures(graph: Graph, codes: NDArray[np.int8]) -> Restructured:
    """Replaces operations.

    Args:
        graph: as built from an incoming module, or itself a result of this function.
        codes: int8 [N]; `Decisions.restructure`. Those that only rewrite kernels do nothing here.

    Raises:
        DecisionError: a code is outside the graph's masks.
        VerificationError: the new module breaks a static rule (a defect here, never the caller's).
    """
    graph.masks.check(graph.default.with_changes(restructure=codes))
    codes = replacing(codes)
    key = codes.tobytes()
    made = kept_results(graph)
    found = made.get(key)
    if found is None:
        if len(made) >= KEPT_RESULTS:
            made.pop(next(iter(made)))
        found = made[key] = _apply(graph, codes)
    return found


@per_graph
def kept_results(graph: Graph) -> dict[bytes, Restructured]:
    """Restructured graphs made from one, by codes; the oldest first."""
    return {}


def _with_others(
    graph: Graph, codes: NDArray[np.int8]
) -> tuple[NDArray[np.int8], dict[int, list[int]]]:
    """Codes with nodes that go along with others, and without copies that must stay after all.

    Those are copies in loops that are replaced by something else than a loop, and those whose readers would
    wait for each other.

    Returns:
        The codes, and of rows that drop: node -> nodes that must be in memory.
    """
    codes = codes.copy()
    order: dict[int, list[int]] = {}
    behind: dict[int, list[int]] = {}
    for node in np.flatnonzero(codes).tolist():
        row = RESTRUCTURES[int(codes[node])]
        if row.turns:
            codes[row.along(Candidate(graph, node))] = codes[node]
        if not row.drops:
            continue
        candidate = Candidate(graph, node)
        first = None if _is_gone(graph, codes, node) else row.orders(candidate, order)
        if first is None:
            codes[node] = 0
            continue
        behind[node] = first
        codes[row.along(candidate)] = codes[node]
    return codes, behind


def _is_gone(graph: Graph, codes: NDArray[np.int8], node: int) -> bool:
    """True for a node of a loop that is replaced, or lies in such a loop; not if it stays a loop."""
    caller = _caller(graph, node)
    while caller >= 0 and (not codes[caller] or RESTRUCTURES[int(codes[caller])].around):
        caller = _caller(graph, caller)
    return caller >= 0


def _apply(graph: Graph, codes: NDArray[np.int8]) -> Restructured:
    codes, behind = _with_others(graph, codes)
    apart = turned(graph, codes, set_apart(graph, codes, behind))
    editor = ModuleEditor(apart.computations, apart.origins)
    proto = _edited(graph, codes, apart, editor)
    analysis = order_readers(proto, apart.known)
    if editor.packed:
        pack.gather(proto, editor)  # keeps every path from a reader to the writer
        analysis = InPlaceAnalysis(index(proto))
    bare = build_analysed(analysis, graph.units)
    origin, fresh = _origins(bare, {**apart.origins, **editor.kept}, editor.fresh)
    grouped, changed = group(bare, fresh, editor)
    _, writer = write_again(bare, grouped)
    module = index(writer.module, writer.copied)
    check_signature(module, graph.source.module)
    last = build_over(module, graph.units)
    inner, _ = _origins(last, writer.origins(), {})
    known = inner >= 0
    came_from = np.where(known, origin[inner], -1).astype(np.int32)
    is_fresh = known & fresh[inner]
    joins = np.array([row.joins for row in RESTRUCTURES], np.bool_)
    return Restructured(
        graph=last,
        origin=came_from,
        fresh=is_fresh,
        regrouped=known & changed[inner] & ~is_fresh,
        together=is_fresh & (came_from >= 0) & joins[codes[np.maximum(came_from, 0)]],
        users=graph.user_lists,
    )


def _edited(graph: Graph, codes: NDArray[np.int8], apart: Apart, editor: ModuleEditor) -> Any:
    """The module with every replacement written in the place of its operation."""
    chosen: dict[int, dict[int, int]] = {}
    for node in np.flatnonzero(codes).tolist():
        computation, local = apart.placed[node]
        chosen.setdefault(computation, {})[local] = node
    made: list[Any] = []
    for computation in apart.computations:
        nodes = chosen.get(computation.id)
        if nodes is not None:
            computation = _Edit(graph, codes, apart, editor, computation).run(nodes)
        for finished in (*editor.written, computation):
            editor.computations[finished.id] = finished  # later replacements see the earlier ones
            made.append(finished)
        editor.written.clear()
    out = apart.header
    out.computations.extend(_used(made, out.entry_computation_id, apart.known))
    return out


def _used(computations: list[Any], entry: int, known: Mapping[int, ComputationIndex]) -> list[Any]:
    """All but computations that nothing calls any more: bodies of replaced fusions."""
    used = {entry}
    kept = []
    for computation in reversed(computations):
        if computation.id not in used:
            continue
        kept.append(computation)
        same = known.get(computation.id)
        if same is not None and same.proto is computation:
            for instruction in same.instructions:
                used.update(instruction.called)
            continue
        for proto in computation.instructions:
            used.update(proto.called_computation_ids)
    return kept[::-1]


class _Edit:
    """Rewrites one computation's instruction list."""

    def __init__(
        self,
        graph: Graph,
        codes: NDArray[np.int8],
        apart: Apart,
        editor: ModuleEditor,
        computation: Any,
    ) -> None:
        self.graph = graph
        self.codes = codes
        self.fused = apart.fused
        self.editor = editor
        self.computation = computation
        self.shapes = {i.id & LOCAL_ID: i.shape for i in computation.instructions}
        self.by_id = {i.id & LOCAL_ID: i for i in computation.instructions}
        self.next_id = max(self.shapes) + 1

    def run(self, nodes: dict[int, int]) -> Any:
        """The computation with the instructions `nodes` (local id -> node) replaced."""
        instructions: list[Any] = []
        direct: dict[int, int] = {}
        for instruction in self.computation.instructions:
            node = nodes.get(instruction.id & LOCAL_ID)
            if node is None:
                instructions.append(instruction)
            elif (row := RESTRUCTURES[int(self.codes[node])]).drops:
                block = Block(self.editor, self.computation.id, node, self.next_id)
                direct[instruction.id & LOCAL_ID] = row.expand(
                    self._site(block, instruction, node)
                ).id
            else:
                instructions += self._replacement(instruction, node)
        out = HloComputationProto()
        out.CopyFrom(self.computation)
        out.ClearField("instructions")
        out.instructions.extend(_without_detours(instructions, self.computation.root_id, direct))
        return out

    def _replacement(self, placed: Any, node: int) -> list[Any]:
        row = RESTRUCTURES[int(self.codes[node])]
        origin = _caller(self.graph, node) if row.around else node
        block = Block(self.editor, self.computation.id, origin, self.next_id)
        site = self._site(block, placed, node)
        result = row.expand(site)
        self.next_id = block.next_id
        protos = block.protos
        last = next((p for p in protos if p.id == result.id), None)
        if (
            last is None
        ):  # the replacement is one of the operands: give it an instruction of its own
            block.copy(result)
            self.next_id = block.next_id
            last = protos[-1]
        if last.shape.SerializeToString() != placed.shape.SerializeToString():
            last.shape.CopyFrom(placed.shape)
        _add_control(protos, last, list(placed.control_predecessor_ids))
        del self.editor.fresh[self.computation.id, last.id]
        old, last.id = last.id, placed.id
        self.editor.fresh[self.computation.id, placed.id & LOCAL_ID] = node
        if (self.computation.id, old) in self.editor.alone:
            self.editor.alone.remove((self.computation.id, old))
            self.editor.alone.add((self.computation.id, placed.id & LOCAL_ID))
        for proto in protos:
            if old in proto.operand_ids:
                proto.operand_ids[:] = [placed.id if o == old else o for o in proto.operand_ids]
        if placed.metadata:
            for proto in protos:
                proto.metadata = placed.metadata
        return protos

    def _site(self, block: Block, placed: Any, node: int) -> Site:
        """The operation, seen through the one-operation fusion that it may stand in."""
        if node in self.fused:
            return self._inside(block, placed)
        outer = [Value(o & LOCAL_ID, self.shapes[o & LOCAL_ID]) for o in placed.operand_ids]
        site = Site(block, placed, outer, self.editor.computations)
        site.instructions = self.by_id
        site.node = node
        site.nested = _caller(self.graph, node) >= 0
        return site

    def _inside(self, block: Block, placed: Any) -> Site:
        """The only operation of a fusion, constants aside."""
        outer = [Value(o & LOCAL_ID, self.shapes[o & LOCAL_ID]) for o in placed.operand_ids]
        body = self.editor.computations[placed.called_computation_ids[0]]
        by_id = {i.id: i for i in body.instructions}
        instruction = by_id[body.root_id]
        operands = []
        for local in instruction.operand_ids:
            inner = by_id[local]
            if inner.opcode == "parameter":
                operands.append(outer[inner.parameter_number])
            else:  # a constant that XLA keeps inside
                operands.append(block.clone(inner, ()))
        return Site(
            block,
            instruction,
            operands,
            self.editor.computations,
            lambda v: self._maker(block, v),
            self.by_id,
        )

    def _maker(self, block: Block, value: Value) -> Site | None:
        """The operation behind an operand, if it stands in a fusion of its own."""
        placed = self.by_id.get(value.id)
        if placed is None or placed.opcode != "fusion" or placed.fusion_kind != "kLoop":
            return None
        body = self.editor.computations[placed.called_computation_ids[0]]
        others = [i for i in body.instructions if i.opcode not in ("parameter", "constant")]
        return self._inside(block, placed) if len(others) == 1 else None


def _caller(graph: Graph, node: int) -> int:
    """The node that calls the computation around a node; -1 in the entry computation."""
    caller = graph.computations[graph.computation[node]].caller
    return -1 if caller is None else caller


def _without_detours(instructions: list[Any], root: int, direct: dict[int, int]) -> list[Any]:
    """Users of an element of a tuple made here use what went into it; XLA expects no such elements.

    `direct`: local id -> what users of an instruction that is left out use instead.
    """
    tuples = {i.id & LOCAL_ID: i for i in instructions if i.opcode == "tuple"}
    kept = []
    for instruction in instructions:
        if direct:
            _redirect(instruction.operand_ids, direct)
            _redirect(instruction.control_predecessor_ids, direct)
        source = tuples.get(instruction.operand_ids[0] & LOCAL_ID) if (
            instruction.opcode == "get-tuple-element" and instruction.id != root
        ) else None  # fmt: skip
        if source is None:
            kept.append(instruction)
        else:
            direct[instruction.id & LOCAL_ID] = source.operand_ids[instruction.tuple_index]
    return _read_ones(kept, root)


def _read_ones(instructions: list[Any], root: int) -> list[Any]:
    """All but what nobody reads: tuples and copies would keep arrays in buffers of their own, kernels run."""
    read = {root & LOCAL_ID}
    kept = []
    for instruction in reversed(instructions):
        if instruction.opcode in _PURE and instruction.id & LOCAL_ID not in read:
            continue
        kept.append(instruction)
        for ids in (instruction.operand_ids, instruction.control_predecessor_ids):
            read.update(i & LOCAL_ID for i in ids)
    return kept[::-1]


def _redirect(ids: Any, direct: dict[int, int]) -> None:
    """Replaces local ids in a repeated field, which is left alone where it has none of them."""
    before = list(ids)
    after = [direct.get(i & LOCAL_ID, i) for i in before]
    if after != before:
        ids[:] = after


def _add_control(protos: list[Any], last: Any, before: list[int]) -> None:
    """What had to come before the operation comes before whatever writes in its place."""
    if not before:
        return
    by_id = {p.id: p for p in protos}
    writers = [p for p in protos if p.opcode in _WRITERS]
    stack = [last]
    while stack:
        proto = stack.pop()
        if proto.opcode in ("tuple", "get-tuple-element", "bitcast"):
            stack += [by_id[o] for o in proto.operand_ids if o in by_id]
        elif proto not in writers:
            writers.append(proto)
    for proto in writers:
        proto.control_predecessor_ids.extend(before)


def _origins(
    graph: Graph, known: dict[tuple[int, int], int], fresh: dict[tuple[int, int], int]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Per node: where it comes from (-1: nowhere), and whether it is new."""
    origin = np.full(len(graph), -1, np.int32)
    is_fresh = np.zeros(len(graph), np.bool_)
    for node, instances in enumerate(graph.source.instances):
        for instance in instances:
            if instance in fresh:
                origin[node], is_fresh[node] = fresh[instance], True
            elif instance in known:
                origin[node], is_fresh[node] = known[instance], False
                break
    return origin, is_fresh
