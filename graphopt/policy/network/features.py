"""What the network knows of a graph: node columns, edges, computations, the decision fields.

All columns are free of scale: sizes and times are logarithms, shares or ratios, cut to a fixed range. XLA's
own decisions are columns too, and the heuristic's, because the policy decides where to deviate from them.
`NUMERIC` is the table of columns; docs/training.md prints it.

Axis letters: N nodes, E edges, C computations, F numeric columns, V values of a field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.opcodes import OPS
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import replacing
from graphopt.machine import Machine, UnitKind, probe
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.network.decision_space import ALL_ROWS, DECODED, FieldInput, KnownRows
from graphopt.policy.network.facts import Column, Facts

VERSION: Final = 3
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

_FUSIBLE: Final = np.array([op.fusible for op in OPS])
_EXPENSIVE: Final = np.array([op.expensive for op in OPS])
_REGIONAL: Final = np.array([op.regional for op in OPS])
_COST: Final = np.array([op.cost for op in OPS])


@dataclass(frozen=True, eq=False)
class Features:
    """Everything the network reads of one graph.

    Attributes:
        numeric: float32 [N, F]; the columns of `NUMERIC`, each within [-4, 4].
        opcode: int32 [N]; row of `OP_NAMES`.
        dtype: int32 [N]; row of `DTYPE_NAMES`.
        senders: int32 [E]; the operand (or control predecessor) of each edge.
        receivers: int32 [E]; its user (or control successor), ascending.
        first: int32 [C]; first node of each computation, ascending; its nodes are contiguous.
        caller: int32 [C]; node that calls the computation, -1 for the entry.
        share: float32 [N]; estimated share of the module's run time, sums to 1.
        fields: the decision fields, in decoding order.
        start: decisions that the policy starts from, as in `fields`.
    """

    numeric: NDArray[np.float32]
    opcode: NDArray[np.int32]
    dtype: NDArray[np.int32]
    senders: NDArray[np.int32]
    receivers: NDArray[np.int32]
    first: NDArray[np.int32]
    caller: NDArray[np.int32]
    share: NDArray[np.float32]
    fields: tuple[FieldInput, ...]
    start: Decisions

    def __len__(self) -> int:
        """Number of nodes N."""
        return len(self.opcode)


class Feature(NamedTuple):
    """One numeric column: its name, what it holds, and how it is computed (any dtype, [N])."""

    name: str
    meaning: str
    compute: Callable[[Facts], Column]


def _log(values: Column, scale: float) -> Column:
    """log2(1 + values) / scale."""
    return np.log2(1.0 + np.asarray(values, np.float64)) / scale


def _ratio(values: Column, to: Column | float) -> Column:
    """log2 of a ratio of sizes, 0 where there is nothing to compare."""
    top = np.asarray(values, np.float64)
    out = np.log2((top + 1.0) / (np.asarray(to, np.float64) + 1.0)) / 8.0
    return np.where(top > 0, out, 0.0)


def _computation_positions(facts: Facts) -> Column:
    first = facts.per_computation([c.first for c in facts.graph.computations])
    size = facts.per_computation([c.end - c.first for c in facts.graph.computations])
    return (np.arange(len(facts.graph)) - first) / size


def native_around(facts: Facts) -> Column:
    """bool [N]; a computation that the node lies in is called by a node that starts as native."""
    native = facts.unit_kinds[facts.start.unit, list(UnitKind).index(UnitKind.NATIVE)]
    computations = facts.graph.computations
    inside = [False] * len(computations)
    for index in range(len(computations) - 1, -1, -1):
        caller, parent = computations[index].caller, computations[index].parent
        if caller is not None and parent is not None:
            inside[index] = bool(native[caller]) or inside[parent]
    return np.asarray(inside)[facts.graph.computation]


_GRAPH: Final[tuple[Feature, ...]] = (
    Feature("elements", "log elements of the result", lambda f: _log(f.graph.elements, 10)),
    Feature("bytes", "log bytes of the result", lambda f: _log(f.graph.nbytes, 10)),
    Feature("bytes_per_l1", "log bytes / L1", lambda f: _ratio(f.graph.nbytes, f.machine.l1_bytes)),
    Feature("bytes_per_l2", "log bytes / L2", lambda f: _ratio(f.graph.nbytes, f.machine.l2_bytes)),
    Feature("bytes_per_l3", "log bytes / L3", lambda f: _ratio(f.graph.nbytes, f.machine.l3_bytes)),
    Feature("rank", "dimensions / 4", lambda f: np.diff(f.graph.dim_start) / 4),
    Feature("minor", "log of the minor dimension", lambda f: _log(f.dimension(last=True), 8)),
    Feature("major", "log of the major dimension", lambda f: _log(f.dimension(last=False), 8)),
    Feature("cost", "log cost of one element", lambda f: _log(_COST[f.graph.opcode], 2)),
    Feature("fusible", "may sit in a loop cluster", lambda f: _FUSIBLE[f.graph.opcode]),
    Feature("expensive", "XLA never recomputes it", lambda f: _EXPENSIVE[f.graph.opcode]),
    Feature("regional", "may sit in a native region", lambda f: _REGIONAL[f.graph.opcode]),
    Feature("operands", "log operands", lambda f: _log(np.diff(f.graph.operand_start), 2)),
    Feature("users", "log uses", lambda f: _log(f.users, 2)),
    Feature(
        "operand_size",
        "log largest operand / result, elements",
        lambda f: _ratio(f.operand_elements, f.graph.elements),
    ),
    Feature(
        "user_size",
        "log largest user / result, elements",
        lambda f: _ratio(f.largest_user, f.graph.elements),
    ),
    Feature("work", "log estimated ns, once", lambda f: _log(f.estimates.work, 8)),
    Feature("default_time", "log estimated ns by XLA", lambda f: _log(f.estimates.default, 8)),
    Feature(
        "native_gain",
        "log estimated XLA / native time",
        lambda f: 2 * _ratio(f.estimates.default, f.estimates.native),
    ),
    Feature("share", "log share of run time", lambda f: np.log10(f.share + 1e-6) / 3 + 1),
)

_DEFAULT: Final[tuple[Feature, ...]] = (
    Feature("fused", "XLA fuses it", lambda f: f.graph.default.fuse),
    Feature("joined", "XLA joins it", lambda f: f.graph.default.join),
    *(
        Feature(
            f"runs_{kind.value}",
            f"XLA runs it as {kind.value}",
            lambda f, k=k: f.unit_kinds[f.graph.default.unit, k] & ~f.graph.default.fuse,  # type: ignore[misc]
        )
        for k, kind in enumerate(UnitKind)
    ),
    Feature(
        "threads",
        "log threads XLA gives it",
        lambda f: np.log2([u.threads for u in f.graph.units])[f.graph.default.unit] / 4,
    ),
    Feature("fused_users", "log uses that XLA fuses", lambda f: _log(f.fused_users, 2)),
    Feature("fused_operands", "log operands that XLA fuses", lambda f: _log(f.fused_operands, 2)),
    Feature("copies", "log times XLA computes it", lambda f: _log(f.copies, 4)),
    Feature(
        "recompute",
        "log ns spent on recomputing it",
        lambda f: _log(np.maximum(f.copies - 1, 0) * f.cluster_work, 10),
    ),
    Feature("cluster", "log ns of its cluster so far", lambda f: _log(f.cluster_work, 8)),
    Feature(
        "may_split", "a loop on several cores is allowed", lambda f: f.may_run(UnitKind.LOOP, 2)
    ),
    Feature("may_library", "the library is allowed", lambda f: f.may_run(UnitKind.LIBRARY)),
    Feature("may_native", "a native region is allowed", lambda f: f.may_run(UnitKind.NATIVE)),
)

_START: Final[tuple[Feature, ...]] = (
    Feature("start_fused", "the heuristic fuses it", lambda f: f.start.fuse),
    Feature("start_joined", "the heuristic joins it", lambda f: f.start.join),
    Feature(
        "start_replaced", "the heuristic replaces it", lambda f: replacing(f.start.restructure) > 0
    ),
    *(
        Feature(
            f"start_{kind.value}",
            f"the heuristic runs it as {kind.value}",
            lambda f, k=k: f.unit_kinds[f.start.unit, k] & ~f.start.fuse,  # type: ignore[misc]
        )
        for k, kind in enumerate(UnitKind)
    ),
    Feature("start_native_around", "the heuristic makes a loop around it native", native_around),
    Feature(
        "start_threads",
        "log threads the heuristic gives it",
        lambda f: np.log2([u.threads for u in f.graph.units])[f.start.unit] / 4,
    ),
)

_COMPUTATION: Final[tuple[Feature, ...]] = (
    *(
        Feature(
            f"in_{role.name.lower()}",
            f"lies in a computation of role {role.name}",
            lambda f, r=role: f.per_computation([c.role is r for c in f.graph.computations]),  # type: ignore[misc]
        )
        for role in (Role.LOOP_BODY, Role.LOOP_CONDITION, Role.BRANCH)
    ),
    Feature(
        "trips",
        "log trip count of its loop",
        lambda f: _log(f.per_computation([c.trip_count or 0 for c in f.graph.computations]), 6),
    ),
    Feature(
        "trips_unknown",
        "the trip count is unknown",
        lambda f: f.per_computation([c.trip_count is None for c in f.graph.computations]),
    ),
    Feature("executions", "log runs per call", lambda f: _log(f.graph.executions, 8)),
    Feature(
        "computation_size",
        "log nodes of its computation",
        lambda f: _log(f.per_computation([c.end - c.first for c in f.graph.computations]), 6),
    ),
    Feature("depth", "nesting depth / 4", lambda f: f.per_computation(f.depths) / 4),
    Feature("position", "place in its computation", _computation_positions),
    Feature("inside", "log nodes it stands for", lambda f: _log(np.array(f.graph.nested_sizes), 5)),
)

NUMERIC: Final[tuple[Feature, ...]] = (*_GRAPH, *_DEFAULT, *_START, *_COMPUTATION)
"""All numeric columns, in order. Which values each field allows follows them, see `numeric_names`."""


def numeric_names() -> tuple[str, ...]:
    """Names of all F numeric columns: `NUMERIC`, then one per decision field."""
    return (*(row.name for row in NUMERIC), *(f"free_{name}" for name in DECODED))


def extract(
    graph: Graph,
    machine: Machine | None = None,
    start: Decisions | None = None,
    rows: KnownRows = ALL_ROWS,
) -> Features:
    """The features of a graph.

    Args:
        graph: of the program.
        machine: whose caches count; None for this one.
        start: decisions that the policy starts from; None for the heuristic's.
        rows: what the network knows of `restructure`.
    """
    start = heuristic_steps(graph, STEPS) if start is None else start
    facts = Facts(graph, probe() if machine is None else machine, start, rows)
    numeric = np.empty((len(graph), len(NUMERIC) + len(facts.fields)), np.float32)
    for index, row in enumerate(NUMERIC):
        numeric[:, index] = row.compute(facts)
    for index, field in enumerate(facts.fields, start=len(NUMERIC)):
        numeric[:, index] = field.choice
    np.clip(numeric, -4.0, 4.0, out=numeric)
    senders, receivers = _edges(facts)
    computations = graph.computations
    return Features(
        numeric=numeric,
        opcode=graph.opcode.astype(np.int32) + 1,
        dtype=_DTYPE_ROW[graph.dtype],
        senders=senders,
        receivers=receivers,
        first=np.array([c.first for c in computations], np.int32),
        caller=np.array([-1 if c.caller is None else c.caller for c in computations], np.int32),
        share=facts.share.astype(np.float32),
        fields=facts.fields,
        start=start,
    )


def _edges(facts: Facts) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Operand and control edges, ascending by receiver."""
    control = facts.graph.control
    senders = np.concatenate([facts.graph.operands, control[:, 0]]).astype(np.int32)
    receivers = np.concatenate([facts.receivers, control[:, 1]]).astype(np.int32)
    if len(control):
        order = np.argsort(receivers, kind="stable")
        senders, receivers = senders[order], receivers[order]
    return senders, receivers
