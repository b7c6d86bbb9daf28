"""Moves between decision vectors. Every move stays inside the masks.

Nodes are drawn in proportion to the estimated time spent in them, so that hot code is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.bank.kernels import NodeCosts

FLOOR: Final = 0.02
"""Share of the draws that is spread evenly over all nodes."""


class Mover:
    """Draws moves for one graph."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        """Prepares masks and weights."""
        self.graph = graph
        self.rng = rng
        self.masks = graph.masks
        free = {f: getattr(self.masks, f).sum(axis=1) > 1 for f in FIELDS}
        self.free = {f: np.flatnonzero(v) for f, v in free.items() if v.any()}
        self.heat = node_heat(graph)
        self.control = np.flatnonzero([op.kind is OpKind.CONTROL for op in graph.ops])
        self.native = unit_index(graph.units, UnitKind.NATIVE)
        self.shared = np.flatnonzero([len(users) > 1 for users in graph.user_lists])

    def move(self, decisions: Decisions) -> tuple[Decisions, str]:
        """A neighbour and the name of the move that led to it."""
        order = self.rng.permutation(len(MOVES))
        weights = np.array([m.weight for m in MOVES])
        for index in (*self.rng.choice(len(MOVES), 4, p=weights / weights.sum()), *order):
            name = MOVES[int(index)].name
            found = MOVES[int(index)].apply(self, decisions)
            if found is not None and not found.same_as(decisions):
                return found, name
        return decisions.copy(), "none"

    def pick(self, nodes: NDArray[np.intp]) -> int:
        """One of `nodes`, hot ones more often."""
        heat = self.heat[nodes]
        total = float(heat.sum())
        even = np.full(len(nodes), 1.0 / len(nodes))
        weights = even if total <= 0 else (1 - FLOOR) * heat / total + FLOOR * even
        return int(self.rng.choice(nodes, p=weights / weights.sum()))

    def set(self, decisions: Decisions, field: str, node: int, value: int) -> bool:
        """Sets one value if the masks allow it."""
        if not getattr(self.masks, field)[node, value]:
            return False
        getattr(decisions, field)[node] = value
        return True

    def redraw(self, decisions: Decisions, field: str, node: int) -> bool:
        """Another legal value for one field of one node."""
        allowed = np.flatnonzero(getattr(self.masks, field)[node])
        allowed = allowed[allowed != int(getattr(decisions, field)[node])]
        if not len(allowed):
            return False
        getattr(decisions, field)[node] = int(self.rng.choice(allowed))
        return True


def node_heat(graph: Graph) -> NDArray[np.float64]:
    """float64 [N]; rough nanoseconds spent in each node per run, dispatch included."""
    costs = NodeCosts(graph)
    structure = np.array(
        [op.kind is OpKind.STRUCTURE or op.name == "bitcast" for op in graph.ops], np.bool_
    )
    once = costs.work / 8.0 + costs.transcendental / 8.0 + 30.0 * ~graph.default.fuse
    return np.where(structure, 0.0, once * np.minimum(graph.executions, 1e6))


def _one(field: str) -> Callable[[Mover, Decisions], Decisions | None]:
    def apply(mover: Mover, decisions: Decisions) -> Decisions | None:
        if field not in mover.free:
            return None
        out = decisions.copy()
        mover.redraw(out, field, mover.pick(mover.free[field]))
        return out

    return apply


def _several(mover: Mover, decisions: Decisions) -> Decisions | None:
    out = decisions.copy()
    fields = list(mover.free)
    if not fields:
        return None
    for _ in range(int(mover.rng.integers(2, 7))):
        field = str(mover.rng.choice(fields))
        mover.redraw(out, field, mover.pick(mover.free[field]))
    return out


def _materialise_shared(mover: Mover, decisions: Decisions) -> Decisions | None:
    """Writes a value with several users to memory."""
    nodes = mover.shared[decisions.fuse[mover.shared]]
    if not len(nodes):
        return None
    out = decisions.copy()
    return out if mover.set(out, "fuse", mover.pick(nodes), 0) else None


def _fuse_producers(mover: Mover, decisions: Decisions) -> Decisions | None:
    """Fuses everything around a node that may be fused."""
    if "fuse" not in mover.free:
        return None
    out = decisions.copy()
    node = mover.pick(mover.free["fuse"])
    for other in (node, *mover.graph.operand_lists[node]):
        mover.set(out, "fuse", other, 1)
    return out


def _region(mover: Mover, decisions: Decisions) -> Decisions | None:
    """Makes a loop or branch native, or gives it back to the thunk executor."""
    if not len(mover.control):
        return None
    out = decisions.copy()
    node = mover.pick(mover.control)
    if int(out.unit[node]) == mover.native:
        return out if mover.redraw(out, "unit", node) else None
    return out if mover.set(out, "unit", node, mover.native) else None


def _computation_units(mover: Mover, decisions: Decisions) -> Decisions | None:
    """One unit for everything in a computation that may use it."""
    graph = mover.graph
    heat = np.array([mover.heat[c.first : c.end].sum() for c in graph.computations])
    index = int(
        mover.rng.choice(len(heat), p=heat / heat.sum())
        if heat.sum() > 0
        else mover.rng.integers(len(heat))
    )
    computation = graph.computations[index]
    unit = int(mover.rng.integers(len(graph.units)))
    out = decisions.copy()
    inside = slice(computation.first, computation.end)
    allowed = mover.masks.unit[inside, unit] & ~decisions.fuse[inside]
    out.unit[inside][allowed] = unit
    return out


def _neighbourhood_units(mover: Mover, decisions: Decisions) -> Decisions | None:
    """One unit for a run of neighbouring roots."""
    if "unit" not in mover.free:
        return None
    node = mover.pick(mover.free["unit"])
    allowed = np.flatnonzero(mover.masks.unit[node])
    unit = int(mover.rng.choice(allowed))
    reach = int(mover.rng.choice([4, 16, 64]))
    low, high = max(0, node - reach), min(len(mover.graph), node + reach + 1)
    same = mover.graph.computation[low:high] == mover.graph.computation[node]
    out = decisions.copy()
    out.unit[low:high][same & mover.masks.unit[low:high, unit] & ~decisions.fuse[low:high]] = unit
    return out


def _revert(mover: Mover, decisions: Decisions) -> Decisions | None:
    """Gives part of the changes back to XLA's default."""
    default = mover.graph.default
    changed = np.zeros(len(decisions), np.bool_)
    for field in FIELDS:
        changed |= getattr(decisions, field) != getattr(default, field)
    nodes = np.flatnonzero(changed)
    if not len(nodes):
        return None
    chosen = nodes[mover.rng.random(len(nodes)) < mover.rng.choice([0.1, 0.5, 1.0 / len(nodes)])]
    if not len(chosen):
        chosen = mover.rng.choice(nodes, 1)
    out = decisions.copy()
    for field in FIELDS:
        getattr(out, field)[chosen] = getattr(default, field)[chosen]
    return out


@dataclass(frozen=True)
class Move:
    """One row of the table.

    Attributes:
        name: for reports.
        weight: relative frequency.
        apply: a neighbour, or None where the move does not apply.
    """

    name: str
    weight: float
    apply: Callable[[Mover, Decisions], Decisions | None]


MOVES: Final[tuple[Move, ...]] = (
    Move("one fuse", 4.0, _one("fuse")),
    Move("one join", 2.0, _one("join")),
    Move("one unit", 4.0, _one("unit")),
    *(
        Move(f"one {field}", 2.0, _one(field))
        for field in FIELDS
        if field not in ("fuse", "join", "unit")
    ),
    Move("several", 2.0, _several),
    Move("materialise shared value", 3.0, _materialise_shared),
    Move("fuse producers", 2.0, _fuse_producers),
    Move("region", 3.0, _region),
    Move("units of a computation", 1.0, _computation_units),
    Move("units of a neighbourhood", 2.0, _neighbourhood_units),
    Move("revert", 3.0, _revert),
)
"""All moves."""


def cross(rng: np.random.Generator, graph: Graph, one: Decisions, two: Decisions) -> Decisions:
    """Takes each computation, or a run of nodes in it, from one of two parents."""
    out = one.copy()
    for computation in graph.computations:
        low, high = computation.first, computation.end
        if rng.random() < 0.5 and high - low > 1:
            low, high = sorted(rng.integers(low, high + 1, 2).tolist())
        elif rng.random() < 0.5:
            continue
        for field in FIELDS:
            getattr(out, field)[low:high] = getattr(two, field)[low:high]
    return out
