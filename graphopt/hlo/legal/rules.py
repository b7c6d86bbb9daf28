"""The legality table: which decisions are allowed for a node, and the rule that forbids the others.

Every rule is a row: the field and values it forbids, a predicate over the whole graph, and a message
for people. Rule names appear in masks, reports and errors. Rules that depend on several decisions at
once (cluster size, recomputation, acyclic multi-output fusion) live in `graphopt.hlo.plan.clusters`.

All rules are sound for joint choices: any combination of allowed values is a legal module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import DecisionError, UnsupportedModuleError
from graphopt.hlo.graph.decisions import ALLOWED, Masks
from graphopt.hlo.graph.derived import derives, per_graph
from graphopt.hlo.graph.graph import FROZEN_FUSED, FROZEN_ROOT, Computation, Graph
from graphopt.hlo.legal.region_support import regional_once_opened
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import device_count
from graphopt.hlo.module.opcodes import OPS, Op, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rules import opened, restructure_rules
from graphopt.hlo.restructure.table import RESTRUCTURES
from graphopt.hlo.restructure.table import RULES as RESTRUCTURE_RULES
from graphopt.machine import UnitKind

BoolArray = NDArray[np.bool_]


def _by_opcode(holds: Callable[[Op], bool]) -> BoolArray:
    """bool [opcodes]; indexed by `Graph.opcode`, it says what holds of every node."""
    return np.array([holds(op) for op in OPS], np.bool_)


_FUSIBLE: Final = _by_opcode(lambda op: op.fusible and op.name != "constant")
_CONSTANT: Final = _by_opcode(lambda op: op.name == "constant")
_STRUCTURE: Final = _by_opcode(lambda op: op.kind is OpKind.STRUCTURE)
_BITCAST: Final = _by_opcode(lambda op: op.name == "bitcast")
_UPDATE: Final = _by_opcode(lambda op: op.name == "dynamic-update-slice")
_DOT: Final = _by_opcode(lambda op: op.name == "dot")


class Facts:
    """Per-node properties that the rules share; every array is bool [N]."""

    def __init__(self, graph: Graph) -> None:
        """Derives what most rules need."""
        self.graph = graph
        self.fusible = _FUSIBLE[graph.opcode]
        self.constant = _CONSTANT[graph.opcode]
        self.structure = _STRUCTURE[graph.opcode]
        self.bitcast = _BITCAST[graph.opcode]
        self.tuple_shaped = graph.dtype == DType.TUPLE
        self.plain_copy = graph.plain_copies
        self.update = _UPDATE[graph.opcode]
        inside, root = graph.library_nodes
        self.library_inside = np.array(inside, np.bool_)
        self.library_root = np.array(root, np.bool_)
        self.root = np.zeros(len(graph), np.bool_)
        self.root[[c.root for c in graph.computations]] = True
        self.clusterable = self.fusible & ~self.plain_copy
        self.opened = np.zeros(len(graph), np.bool_)
        """bool [N]; walls for native regions that a restructure takes away."""
        self.fuse_rule = np.full(len(graph), ALLOWED, np.int16)
        """int16 [N]; what the rules evaluated so far say of fuse=1 (`make_masks` shares its column)."""

    @cached_property
    def library_only(self) -> BoolArray:
        """Operations that fuse only inside the kernel library: dot."""
        return _DOT[self.graph.opcode] & (
            self.library_inside | self.graph.default.fuse | self.default_library
        )

    @cached_property
    def default_library(self) -> BoolArray:
        """Roots of the clusters that XLA gave to the library."""
        kinds = np.array([u.kind is UnitKind.LIBRARY for u in self.graph.units], np.bool_)
        return kinds[self.graph.default.unit] & ~self.graph.default.fuse

    @cached_property
    def read_from_memory(self) -> BoolArray:
        """Values with a user that cannot compute them itself."""
        graph = self.graph
        needs = np.zeros(len(graph), np.bool_)
        users = np.repeat(np.arange(len(graph)), np.diff(graph.operand_start))
        takes = self.clusterable | self.library_only
        needs[graph.operands[~takes[users]]] = True
        return needs

    @cached_property
    def _frozen(self) -> dict[tuple[int, str], list[int]]:
        """(state, rule) -> nodes that in-place promises fix so."""
        found: dict[tuple[int, str], list[int]] = {}
        for node, frozen in enumerate(self.graph.source.frozen):
            if frozen is not None:
                found.setdefault(frozen, []).append(node)
        return found

    @cached_property
    def always_fused(self) -> BoolArray:
        """Nodes that in-place promises keep out of memory."""
        out = np.zeros(len(self.graph), np.bool_)
        for (state, _), nodes in self._frozen.items():
            if state == FROZEN_FUSED:
                out[nodes] = True
        return out

    def frozen(self, state: int, rule: str) -> BoolArray:
        """Nodes that in-place promises fix in `state` under the name `rule`."""
        out = np.zeros(len(self.graph), np.bool_)
        out[self._frozen.get((state, rule), [])] = True
        return out


Predicate = Callable[[Facts], BoolArray]


@dataclass(frozen=True)
class Rule:
    """One row: `forbids` marks the nodes for which `field` may not take `value`.

    Attributes:
        name: appears in masks, reports and errors.
        field: "fuse", "join" or "unit".
        value: the forbidden value; for "unit" the name of a unit kind.
        message: why, for people.
        forbids: bool [N] from `Facts`.
    """

    name: str
    field: str
    value: int | str
    message: str
    forbids: Predicate


def _frozen_rule(state: int, name: str, value: int, message: str) -> Rule:
    return Rule(name, "fuse", value, message, lambda f: f.frozen(state, name))


RULES: Final[tuple[Rule, ...]] = (
    Rule("not-fusible", "fuse", 1, "a loop fusion cannot contain this operation",
         lambda f: ~(f.fusible | f.library_only | f.constant)),
    Rule("constant", "fuse", 1, "an array constant stays in memory",
         lambda f: f.constant & ~f.graph.default.fuse),
    Rule("constant", "fuse", 0, "a constant that XLA put into fusions stays there",
         lambda f: f.constant & f.graph.default.fuse),
    Rule("tuple-shaped", "fuse", 1, "a tuple result is read from memory",
         lambda f: f.tuple_shaped),
    Rule("computation-root", "fuse", 1, "the result of a computation is written to memory",
         lambda f: f.root),
    Rule("read-from-memory", "fuse", 1, "a user of the value is no fusion and reads it from memory",
         lambda f: f.read_from_memory),
    Rule("copy", "fuse", 1, "a copy separates buffers and stays where it is",
         lambda f: f.plain_copy),
    _frozen_rule(FROZEN_ROOT, "copy", 1, "a copy separates buffers and stays where it is"),
    _frozen_rule(FROZEN_FUSED, "copy", 0, "a copy in a fusion that keeps the order of memory stays there"),
    _frozen_rule(FROZEN_ROOT, "own-buffer", 1, "its buffer is shared with a loop or a result"),
    Rule("own-buffer", "fuse", 0, "in memory it would share a buffer that is reused, and others read it",
         lambda f: _shares_read_buffer(f)),
    _frozen_rule(FROZEN_ROOT, "in-place-update", 1, "the update writes into its operand's buffer"),
    _frozen_rule(FROZEN_FUSED, "in-place-update", 0, "part of an update in place"),
    _frozen_rule(FROZEN_ROOT, "update-target", 1, "its buffer is updated in place"),
    _frozen_rule(FROZEN_FUSED, "update-target", 0, "in memory its buffer would be updated in place"),
    _frozen_rule(FROZEN_FUSED, "out-of-place-update", 0, "in memory it would overwrite its operand"),
    _frozen_rule(FROZEN_ROOT, "control-dependency", 1, "another instruction is ordered against it"),
    Rule("in-place-order", "fuse", 1, "a consumer would read a buffer after it is overwritten",
         lambda f: _reads_too_late(f)),
    Rule("not-a-loop", "join", 1, "only array-shaped loop clusters have several outputs",
         lambda f: ~f.clusterable | f.tuple_shaped | f.bitcast | f.update),
    Rule("always-fused", "join", 1, "the node is never a root",
         lambda f: f.constant | f.always_fused),
    Rule("in-place-writer", "join", 1, "its cluster overwrites a buffer that others read",
         lambda f: _is_writer(f)),
    Rule("not-a-loop", "unit", UnitKind.LOOP, "no loop can compute this operation",
         lambda f: ~f.clusterable),
    Rule("library-support", "unit", UnitKind.LIBRARY, "the kernel library has no such operation",
         lambda f: ~(f.library_root | f.default_library)),
    Rule("in-place-writer", "unit", UnitKind.LIBRARY, "the library does not write in place",
         lambda f: _is_writer(f) & ~f.default_library),
    Rule("loop-operation", "unit", UnitKind.RUNTIME, "the operation is computed by a loop",
         lambda f: f.clusterable),
    # A wall that a restructure can take away is allowed; `clusters` settles whether it was taken.
    Rule("not-in-region", "unit", UnitKind.NATIVE, "a native region cannot contain it",
         lambda f: ~regional_once_opened(f.graph, f.opened) | f.structure),
)  # fmt: skip
"""The rules that do not depend on other decisions."""

PARTITION_RULE: Final = Rule(
    "partition", "unit", UnitKind.LOOP, "the shape cannot be split into so many parts",
    lambda f: np.zeros(len(f.graph), np.bool_),
)  # fmt: skip


SHARED_CORES_RULE: Final = Rule(
    "shared-cores", "unit", UnitKind.LOOP, "the program's other devices run on these cores too",
    lambda f: np.zeros(len(f.graph), np.bool_),
)  # fmt: skip


ALL_RULES: Final = (*RULES, PARTITION_RULE, SHARED_CORES_RULE)


def _shares_read_buffer(facts: Facts) -> BoolArray:
    """Values behind the bitcast that names a shared buffer, and that something else reads too."""
    out = facts.frozen(FROZEN_FUSED, "own-buffer")
    for value in np.flatnonzero(out).tolist():
        out[value] = len(facts.graph.user_lists[value]) > 1
    return out


def _is_writer(facts: Facts) -> BoolArray:
    out = np.zeros(len(facts.graph), np.bool_)
    for writers in facts.graph.in_place.writer:
        for node in writers:
            out[node] = True
            while facts.bitcast[node]:  # its operand, once in memory, writes in its place
                (node,) = facts.graph.operand_lists[node]
                out[node] = True
    return out


def _reads_too_late(facts: Facts) -> BoolArray:
    """Nodes that read, themselves or through fused operands, a buffer that a consumer outlives.

    Inductive over the node order: if a node that carries a promise may only be fused into consumers
    that precede the promise's writer (or shared the writer's cluster by default), then no cluster
    that reads the buffer has its root after the writer.
    """
    graph = facts.graph
    in_place = graph.in_place
    out = np.zeros(len(graph), np.bool_)
    may_fuse = np.equal(facts.fuse_rule, ALLOWED).tolist()
    carried = list(in_place.reads)
    for computation, writers in zip(graph.computations, in_place.writer, strict=True):
        if not writers:
            continue
        too_late = _too_late(graph, computation, writers)
        for node in range(computation.first, computation.end):
            for operand in graph.operand_lists[node]:
                if may_fuse[operand]:
                    carried[node] |= carried[operand]
            if may_fuse[node] and carried[node] & too_late[node - computation.first]:
                out[node] = True
                may_fuse[node] = False
    return out


def _too_late(graph: Graph, computation: Computation, writers: Iterable[int]) -> list[int]:
    """Per node of a computation: promises that it may not carry into its consumers.

    Consumers that XLA fused stay fusible: what they must not carry, their operands must not either. What
    the writer's own kernel takes in is settled there (`graphopt.hlo.plan.overwritten`).
    """
    default_fuse = graph.default.fuse.tolist()
    first = computation.first
    after = _bits_after(first, computation.end, writers)
    out = [0] * len(after)
    for node in range(computation.end - 1, first - 1, -1):
        bits = 0
        for user in graph.user_lists[node]:
            bits |= after[user - first]
            if default_fuse[user]:
                bits |= out[user - first]
        out[node - first] = bits
    return out


def _bits_after(first: int, end: int, writers: Iterable[int]) -> list[int]:
    """Per node of a computation: promises whose writer comes earlier in the node order."""
    at = [0] * (end - first + 1)
    for bit, writer in enumerate(writers):
        at[writer - first + 1] |= 1 << bit
    running, out = 0, []
    for bits in at[:-1]:
        running |= bits
        out.append(running)
    return out


@derives("masks")
def make_masks(
    graph: Graph, *, replacements: bool = True, rows: Collection[int] | None = None
) -> Masks:
    """The legality masks of a graph.

    Args:
        graph: whose nodes to judge.
        replacements: also judge which operations may be replaced; if not, none may, and loops that would be
            native only thanks to one may not be native either.
        rows: judge only these rows of the table of restructures, and forbid the others; None for all.

    Raises:
        UnsupportedModuleError: rule ``default-outside-masks``: XLA's own decisions break a rule, so
            the rules do not describe this module.
    """
    facts = Facts(graph)
    names = list(dict.fromkeys([*(r.name for r in ALL_RULES), *RESTRUCTURE_RULES]))
    masks = Masks(
        rules=tuple(names),
        fuse_rule=np.full((len(graph), 2), ALLOWED, np.int16),
        join_rule=np.full((len(graph), 2), ALLOWED, np.int16),
        unit_rule=np.full((len(graph), len(graph.units)), ALLOWED, np.int16),
        restructure_rule=np.full((len(graph), len(RESTRUCTURES)), ALLOWED, np.int16),
    )
    facts.fuse_rule = masks.fuse_rule[:, 1]
    _apply(facts, masks, ("fuse", "join"))
    if replacements:
        masks.restructure_rule[:] = restructure_rules(graph, masks.fuse_rule, names, rows)
        facts.opened = opened(masks.restructure_rule)
    else:
        masks.restructure_rule[:, 1:] = names.index("other-operation")
    _apply(facts, masks, ("unit",))
    _add_partition_rules(graph, facts, masks, names.index(PARTITION_RULE.name))
    _add_shared_cores(graph, masks, names.index(SHARED_CORES_RULE.name))
    if replacements:
        _check_default(graph, masks)
    return masks


@per_graph
def settled_masks(graph: Graph) -> Masks:
    """The masks of a graph whose operations have been replaced, to carry decisions over to: no further
    replacement is judged, which for some rows takes as long as all other rules together.
    """
    known: Masks | None = graph.derived.get("masks")
    return make_masks(graph, rows=_SETTLED_ROWS) if known is None else known


_SETTLED_ROWS: Final = frozenset(
    code for code, row in enumerate(RESTRUCTURES) if row.opens or not row.replaces
)
"""Rows that only say how a kernel is written, and those that decide what may be native."""


def _apply(facts: Facts, masks: Masks, fields: tuple[str, ...]) -> None:
    """Enters the rules about some fields; the first rule that forbids a value names it."""
    kinds = [unit.kind for unit in facts.graph.units]
    for rule in RULES:
        if rule.field not in fields:
            continue
        table = getattr(masks, f"{rule.field}_rule")
        where = rule.forbids(facts)
        if not where.any():
            continue
        columns = (
            [int(rule.value)]
            if rule.field != "unit"
            else [i for i, kind in enumerate(kinds) if kind == rule.value]
        )
        for column in columns:
            table[where & (table[:, column] == ALLOWED), column] = masks.rules.index(rule.name)


def _add_partition_rules(graph: Graph, facts: Facts, masks: Masks, rule: int) -> None:
    single = facts.update | facts.tuple_shaped
    dims, layouts = graph.dim_lists, graph.source.layouts
    for column, unit in enumerate(graph.units):
        if unit.kind is not UnitKind.LOOP or unit.threads == 1:
            continue
        candidates = facts.clusterable & (graph.default.unit != column)
        never = single | (graph.elements < unit.threads)
        masks.unit_rule[candidates & never, column] = rule
        for node in np.flatnonzero(candidates & ~never).tolist():
            parts = backend_config.feasible_parts(tuple(dims[node]), layouts[node], unit.threads)
            if parts != unit.threads:
                masks.unit_rule[node, column] = rule


def _add_shared_cores(graph: Graph, masks: Masks, rule: int) -> None:
    """Kernels of several threads only where XLA made them, or where every device has as many cores."""
    devices = device_count(graph.source.module)
    if devices == 1:
        return
    threads = np.array([u.threads if u.kind is UnitKind.LOOP else 1 for u in graph.units])
    own = max(1, int(threads.max()) // devices)
    for column in np.flatnonzero(threads > own).tolist():
        rules = masks.unit_rule[:, column]
        rules[(rules == ALLOWED) & (graph.default.unit != column)] = rule


def _check_default(graph: Graph, masks: Masks) -> None:
    try:
        masks.check(graph.default)
    except DecisionError as error:
        raise UnsupportedModuleError(
            what=f"XLA's own decisions break a rule: {error}",
            where=graph.name,
            fix="nothing to do: the module keeps XLA's default",
            rule="default-outside-masks",
        ) from error
