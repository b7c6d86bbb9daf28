"""What the network of advantages knows of every node and of the program: two tables of columns.

Columns have no scale: sizes and times are logarithms or ratios, cut to a fixed range. Estimated times are
compared with facts of the machine (caches, dispatch, hand-over), so that another machine changes inputs.

Axis letters: N nodes, S columns of nodes, G columns of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.evaluations import turns
from graphopt.costs.model import CostModel
from graphopt.hlo import Graph
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.opcodes import OPS
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.dot_blocks import product_of
from graphopt.machine import Machine, UnitKind

VERSION: Final = 1
"""Raised whenever the meaning of a column changes."""

OP_NAMES: Final = ("unknown", *(op.name for op in OPS))
"""Rows of the operation embedding; a checkpoint maps its own rows by name."""

DTYPE_NAMES: Final = tuple(
    "INVALID PRED S8 S16 S32 S64 U8 U16 U32 U64 F16 F32 F64 TUPLE C64 BF16 C128 other".split()
)
"""Rows of the element type embedding."""

_DTYPE_ROW: Final = np.full(64, len(DTYPE_NAMES) - 1, np.int32)
for _row, _name in enumerate(DTYPE_NAMES[:-1]):
    _DTYPE_ROW[DType[_name]] = _row

LIMIT: Final = 4.0
"""Largest absolute value of a column."""

_COST: Final = np.array([op.cost for op in OPS])
_FUSIBLE: Final = np.array([op.fusible for op in OPS])
_UNITS: Final = (UnitKind.LOOP, UnitKind.LIBRARY, UnitKind.RUNTIME, UnitKind.NATIVE)

Column = NDArray[Any]


def dtype_rows(graph: Graph) -> NDArray[np.int32]:
    """int32 [N]; row of `DTYPE_NAMES` of every node."""
    return _DTYPE_ROW[graph.dtype]


def log_of(values: Any, scale: float) -> Column:
    """log2(1 + values) / scale; values below 0 count as 0."""
    out: Column = np.log2(1.0 + np.maximum(np.asarray(values, np.float64), 0.0)) / scale
    return out


def ratio(values: Any, to: Any) -> Column:
    """log2 of a ratio of sizes or times over 8; 0 where there is nothing to compare."""
    top = np.asarray(values, np.float64)
    below = np.asarray(to, np.float64)
    out = np.log2((np.maximum(top, 0.0) + 1.0) / (np.maximum(below, 0.0) + 1.0)) / 8.0
    return np.where(top > 0, out, 0.0)


class Geometry(NamedTuple):
    """Shape of the work of one operation; ones where it has none.

    Attributes:
        batch: matrices of a product.
        rows: of a product; results of a reduction or window.
        inner: length of the sum of a product, reduction, window or convolution.
        columns: of a product; elements of memory that a reduction's runs hold.
        turned: an operand or the result is read across memory.
    """

    batch: float = 1.0
    rows: float = 1.0
    inner: float = 1.0
    columns: float = 1.0
    turned: bool = False


class NodeFacts:
    """Facts of a graph that columns are made of, computed once each.

    Attributes:
        graph: the graph.
        model: its costs.
        machine: whose caches count.
    """

    def __init__(self, graph: Graph, model: CostModel, machine: Machine) -> None:
        """Computes nothing yet."""
        self.graph, self.model, self.machine = graph, model, machine

    @cached_property
    def program_ns(self) -> float:
        """Estimated nanoseconds of one run by XLA's default."""
        return max(self.model.computations[-1].default_ns(self.model.cores), 1.0)

    @cached_property
    def work(self) -> Column:
        """float64 [N]; nanoseconds to compute a node once, those of loops with all that they run."""
        out = np.array(self.model.work)
        for node in self.model.callees:
            out[node] = self.model.control(node).default_ns(self.model.cores)
        for node in np.flatnonzero(self.is_dot).tolist():
            out[node] += self.model.product(node).library_ns
        return out

    @cached_property
    def evaluated(self) -> Column:
        """float64 [N]; nanoseconds of all evaluations of a node, fused as XLA does."""
        return np.array([self.model.evaluated_ns(node) for node in range(len(self.graph))])

    @cached_property
    def total(self) -> Column:
        """float64 [N]; estimated nanoseconds per run of the program."""
        return np.maximum(self.work, self.evaluated) * self.graph.executions

    @cached_property
    def share(self) -> Column:
        """float64 [N]; `total` as a part of the sum over nodes that are no loops."""
        out = self.total.copy()
        out[list(self.model.callees)] = 0.0
        return out / max(float(out.sum()), 1e-9)

    @cached_property
    def code(self) -> Column:
        """float64 [N]; length of a node's code, that of loops with all that they run."""
        graph = self.graph
        out = np.array([self.model.code_length(node) for node in range(len(graph))])
        for node in self.model.callees:
            out[node] = self.model.control(node).code
        return out

    @cached_property
    def native_ratio(self) -> Column:
        """float64 [N]; loops and products: log2 of XLA's time over that of native code; others 0."""
        out = np.zeros(len(self.graph))
        model = self.model
        for node in model.callees:
            loop = model.control(node)
            out[node] = ratio(loop.default_ns(model.cores), loop.native_ns())
        for node in np.flatnonzero(self.is_dot).tolist():
            product = model.product(node)
            out[node] = ratio(product.library_ns, product.native_ns)
        return out

    @cached_property
    def is_dot(self) -> Column:
        """bool [N]."""
        return np.array([op.name == "dot" for op in self.graph.ops])

    @cached_property
    def geometry(self) -> NDArray[np.float64]:
        """float64 [N, 5]; see `Geometry`."""
        graph = self.graph
        out = np.tile(np.array(Geometry(), np.float64), (len(graph), 1))
        for node, op in enumerate(graph.ops):
            made = _GEOMETRIES.get(op.name)
            if made is not None:
                out[node] = made(graph, node)
        return out

    @cached_property
    def users(self) -> Column:
        """int64 [N]; uses as an operand."""
        return np.bincount(self.graph.operands, minlength=len(self.graph))

    @cached_property
    def operand_bytes(self) -> Column:
        """float64 [N]; bytes of all operands."""
        graph = self.graph
        counts = np.diff(graph.operand_start)
        receivers = np.repeat(np.arange(len(graph)), counts)
        found: Column = np.bincount(receivers, graph.nbytes[graph.operands], minlength=len(graph))
        return found

    @cached_property
    def working_set(self) -> Column:
        """float64 [N]; bytes that the node's computation writes once; for the entry those of the node."""
        graph = self.graph
        written = np.where(graph.default.fuse, 0, graph.nbytes).astype(np.float64)
        sums = np.bincount(graph.computation, written, minlength=len(graph.computations))
        sums[-1] = 0.0
        return np.maximum(sums[graph.computation], graph.nbytes + self.operand_bytes)

    def dimension(self, last: bool) -> Column:
        """int64 [N]; the minor-most or major-most dimension, 1 for scalars and tuples."""
        start = self.graph.dim_start
        out = np.ones(len(self.graph), np.int64)
        has = np.flatnonzero(np.diff(start))
        out[has] = self.graph.dims[start[1:][has] - 1 if last else start[:-1][has]]
        return out

    def per_computation(self, values: list[float]) -> Column:
        """float64 [N]; one value per computation, given to its nodes."""
        return np.asarray(values, np.float64)[self.graph.computation]

    def may_run(self, kind: UnitKind, threads: int = 1) -> Column:
        """bool [N]; some unit of the kind with at least so many threads is allowed."""
        wanted = [u.kind is kind and u.threads >= threads for u in self.graph.units]
        return np.asarray(self.graph.masks.unit[:, wanted].any(axis=1))

    def runs(self, kind: UnitKind) -> Column:
        """bool [N]; XLA writes the node to memory and runs it so."""
        is_kind = np.array([u.kind is kind for u in self.graph.units])
        return is_kind[self.graph.default.unit] & ~self.graph.default.fuse


def _product(graph: Graph, node: int) -> Geometry:
    left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
    product = product_of(graph.source.protos[node], left, right)
    if product is None:
        return Geometry(rows=float(graph.elements[node]), turned=True)
    turned = product.left_turned or product.right_turned
    return Geometry(product.batch, product.rows, product.inner, product.columns, turned)


def _reduction(graph: Graph, node: int) -> Geometry:
    operand = graph.operand_lists[node][0]
    sizes, reduced = graph.dim_lists[operand], list(graph.source.protos[node].dimensions)
    run = 1
    minor = graph.source.shapes[operand].layout.minor_to_major
    for dimension in minor:
        if (dimension in reduced) != (minor[0] in reduced):
            break
        run *= sizes[dimension]
    across = bool(minor) and minor[0] not in reduced
    inner = prod(sizes[dimension] for dimension in reduced)
    return Geometry(1.0, float(graph.elements[node]), inner, run, across)


def _window(graph: Graph, node: int) -> Geometry:
    sizes = [max(1, w.size) for w in graph.source.protos[node].window.dimensions]
    return Geometry(rows=float(graph.elements[node]), inner=prod(sizes))


def _indexed(graph: Graph, node: int) -> Geometry:
    sizes = list(graph.source.protos[node].gather_slice_sizes)
    return Geometry(rows=float(graph.elements[node]), inner=prod(sizes) if sizes else 1.0)


def _turned(graph: Graph, node: int) -> Geometry:
    return Geometry(turned=turns(graph, node))


_GEOMETRIES: Final[dict[str, Callable[[Graph, int], Geometry]]] = {
    "dot": _product,
    "reduce": _reduction,
    "reduce-window": _window,
    "convolution": _window,
    "gather": _indexed,
    "transpose": _turned,
    "copy": _turned,
}


class NodeColumn(NamedTuple):
    """One column of nodes: its name, and how it is computed (any dtype, [N])."""

    name: str
    compute: Callable[[NodeFacts], Column]


NODE_COLUMNS: Final[tuple[NodeColumn, ...]] = (
    NodeColumn("elements", lambda f: log_of(f.graph.elements, 10)),
    NodeColumn("bytes", lambda f: log_of(f.graph.nbytes, 10)),
    NodeColumn("set_per_l1", lambda f: ratio(f.working_set, f.machine.l1_bytes)),
    NodeColumn("set_per_l2", lambda f: ratio(f.working_set, f.machine.l2_bytes)),
    NodeColumn("set_per_l3", lambda f: ratio(f.working_set, f.machine.l3_bytes)),
    NodeColumn("rank", lambda f: np.diff(f.graph.dim_start) / 4),
    NodeColumn("minor", lambda f: log_of(f.dimension(last=True), 8)),
    NodeColumn("major", lambda f: log_of(f.dimension(last=False), 8)),
    NodeColumn("cost", lambda f: log_of(_COST[f.graph.opcode], 2)),
    NodeColumn("fusible", lambda f: _FUSIBLE[f.graph.opcode]),
    NodeColumn("operands", lambda f: log_of(np.diff(f.graph.operand_start), 2)),
    NodeColumn("users", lambda f: log_of(f.users, 2)),
    NodeColumn("read_per_written", lambda f: ratio(f.operand_bytes, f.graph.nbytes)),
    NodeColumn("work", lambda f: log_of(f.work, 8)),
    NodeColumn("work_per_dispatch", lambda f: ratio(f.work, f.model.costs.thunk_ns)),
    NodeColumn("work_per_handover", lambda f: ratio(f.work, f.model.costs.handover_ns)),
    NodeColumn("recomputed", lambda f: ratio(f.evaluated, np.maximum(f.work, 1.0))),
    NodeColumn("native_ratio", lambda f: f.native_ratio),
    NodeColumn("code", lambda f: log_of(f.code, 6)),
    NodeColumn("share", lambda f: np.log10(f.share + 1e-5) / 2.5 + 1),
    NodeColumn("batch", lambda f: log_of(f.geometry[:, 0] - 1, 6)),
    NodeColumn("rows", lambda f: log_of(f.geometry[:, 1] - 1, 8)),
    NodeColumn("inner", lambda f: log_of(f.geometry[:, 2] - 1, 6)),
    NodeColumn("columns", lambda f: log_of(f.geometry[:, 3] - 1, 6)),
    NodeColumn("turned", lambda f: f.geometry[:, 4]),
    NodeColumn("default_fused", lambda f: f.graph.default.fuse),
    *(
        NodeColumn(f"default_{kind.value}", lambda f, k=kind: f.runs(k))  # type: ignore[misc]
        for kind in _UNITS
    ),
    NodeColumn("may_split", lambda f: f.may_run(UnitKind.LOOP, 2)),
    NodeColumn("may_library", lambda f: f.may_run(UnitKind.LIBRARY)),
    NodeColumn("may_native", lambda f: f.may_run(UnitKind.NATIVE)),
    NodeColumn(
        "in_loop",
        lambda f: f.per_computation([c.role is Role.LOOP_BODY for c in f.graph.computations]),
    ),
    NodeColumn(
        "trips",
        lambda f: log_of(f.per_computation([c.trip_count or 0 for c in f.graph.computations]), 6),
    ),
    NodeColumn("executions", lambda f: log_of(f.graph.executions, 8)),
)
"""All columns of nodes that no decision changes, in order."""

STATE_COLUMNS: Final = (
    "fused", "joined", *(f"runs_{kind.value}" for kind in _UNITS), "split", "replaced", "in_native",
    "changed",
)  # fmt: skip
"""Columns that follow the decisions: where the node is computed now, whether it lies in a native loop, and
whether anything about it differs from XLA's own decision."""


class ProgramColumn(NamedTuple):
    """One column of the program and its machine: its name, and how it is computed."""

    name: str
    compute: Callable[[NodeFacts], float]


PROGRAM_COLUMNS: Final[tuple[ProgramColumn, ...]] = (
    ProgramColumn("nodes", lambda f: float(log_of(len(f.graph), 8))),
    ProgramColumn("nanoseconds", lambda f: float(log_of(f.program_ns, 12))),
    ProgramColumn("code", lambda f: float(log_of(f.model.own_code, 8))),
    ProgramColumn("cores", lambda f: float(np.log2(f.machine.cores)) / 3),
    ProgramColumn("vector", lambda f: f.machine.simd_bits / 512),
    ProgramColumn("l2", lambda f: float(log_of(f.machine.l2_bytes, 20))),
    ProgramColumn("l3", lambda f: float(log_of(f.machine.l3_bytes, 25))),
    ProgramColumn("dispatch", lambda f: float(log_of(f.model.costs.thunk_ns, 6))),
    ProgramColumn("handover", lambda f: float(log_of(f.model.costs.handover_ns, 12))),
    ProgramColumn("memory", lambda f: float(log_of(f.model.costs.bytes_per_ns, 4))),
    ProgramColumn("operations", lambda f: float(log_of(f.model.costs.operations_per_ns, 4))),
    ProgramColumn("products", lambda f: float(log_of(f.model.costs.dot_flops_per_ns, 7))),
)
"""All columns of the program, in order."""


def node_table(facts: NodeFacts) -> NDArray[np.float32]:
    """float32 [N, S]; the columns of `NODE_COLUMNS`."""
    out = np.empty((len(facts.graph), len(NODE_COLUMNS)), np.float32)
    for index, row in enumerate(NODE_COLUMNS):
        out[:, index] = row.compute(facts)
    np.clip(out, -LIMIT, LIMIT, out=out)
    return out


def program_row(facts: NodeFacts) -> NDArray[np.float32]:
    """float32 [G]; the columns of `PROGRAM_COLUMNS`."""
    found = np.array([row.compute(facts) for row in PROGRAM_COLUMNS], np.float32)
    clipped: NDArray[np.float32] = np.clip(found, -LIMIT, LIMIT)
    return clipped
