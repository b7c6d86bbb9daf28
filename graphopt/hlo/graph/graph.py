"""The graph that the optimizer sees: one per HLO module, all computations flattened.

Axis letters: N nodes, E operand edges, C control edges, D dimension entries, U execution units.
Nodes are in topological order: callees before callers, operands and control predecessors before
users; the order also respects XLA's in-place promises (see `graphopt.hlo.graph.in_place`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import Decisions, Masks
from graphopt.hlo.graph.derived import fact
from graphopt.hlo.module.index import Instruction, ModuleIndex, Role
from graphopt.hlo.module.opcodes import OP_BY_NAME, OPS, Op
from graphopt.hlo.module.proto import DType, OpMetadata
from graphopt.machine import Unit, UnitKind

IntArray = NDArray[np.int32]


@dataclass(frozen=True)
class Computation:
    """One non-fusion computation of the module.

    Attributes:
        name: its name in the module.
        id: its id in the module.
        role: what calls it.
        first: index of its first node.
        end: one past its last node; nodes ``first..end-1`` are exactly its nodes.
        root: node whose value it returns.
        caller: node that calls it (while, conditional, call); None for the entry.
        parent: index of the caller's computation in `Graph.computations`; None for the entry.
        trip_count: times a loop body or condition runs per execution of the loop, if XLA knows it;
            1 for other computations; None if unknown.
    """

    name: str
    id: int
    role: Role
    first: int
    end: int
    root: int
    caller: int | None
    parent: int | None
    trip_count: int | None


@dataclass(frozen=True)
class InPlace:
    """XLA's in-place promises at node level. Bits number the promises within one computation.

    Attributes:
        writer: per computation, the node that overwrites the buffer of promise k.
        reads: per node, bit set of the promises whose source it reads.
        zone: per node, bit set of the promises whose writer's default cluster contains it.
        before: per node, bit set of the promises whose writer depends on it through operands or
            control edges, so that the order needs no help.
    """

    writer: tuple[tuple[int, ...], ...]
    reads: list[int]
    zone: list[int]
    before: list[int]


@dataclass(frozen=True)
class Source:
    """What the rewriter needs of each node beyond the columns; lists have N entries.

    Attributes:
        module: the module the graph was built from.
        instructions: what became the node; of several equal ones the first.
        keep_config: the instruction's ``backend_config`` is among the node's attributes.
        layouts: dimensions of each array result from minor to major; none for tuples.
        called: ids of called computations (applied ones, or an opaque fusion's body).
        config: ``backend_config`` bytes of the cluster rooted here in the default module.
        bare: True where XLA left a fusible root outside any fusion.
        position: sort key, the node's place in XLA's schedule of the incoming module; nodes of one fusion
            follow each other.
        frozen: (state, rule name) where in-place promises fix the fuse decision: `FROZEN_ROOT` or
            `FROZEN_FUSED`.
        instances: (computation id, local id) of the module's instructions that became the node:
            several where equal ones were merged.
        values: (computation id, local id) of instructions outside fusions -> node of their value.
    """

    module: ModuleIndex
    instructions: list[Instruction]
    keep_config: list[bool]
    layouts: list[tuple[int, ...]]
    called: list[tuple[int, ...]]
    config: list[bytes]
    bare: list[bool]
    position: list[int]
    frozen: list[tuple[int, str] | None]
    instances: list[tuple[tuple[int, int], ...]]
    values: dict[tuple[int, int], int]

    @cached_property
    def protos(self) -> list[Any]:
        """``HloInstructionProto`` of each instruction; only read."""
        return [instruction.proto for instruction in self.instructions]

    @cached_property
    def names(self) -> list[str]:
        """Instruction names."""
        return [proto.name for proto in self.protos]

    @cached_property
    def metadata(self) -> list[bytes]:
        """Serialised ``OpMetadata``."""
        return [proto.metadata for proto in self.protos]

    @cached_property
    def shapes(self) -> list[Any]:
        """``ShapeProto`` of each result; only read."""
        return [instruction.proto.shape for instruction in self.instructions]

    def attributes(self, node: int) -> bytes:
        """Serialised instruction without name, ids, metadata and backend_config of fusions."""
        return self.instructions[node].attributes(self.keep_config[node])


@dataclass(frozen=True, eq=False)
class Graph:
    """An HLO module as a graph with XLA's own decisions.

    Attributes:
        name: module name.
        units: U execution units; `Decisions.unit` indexes it.
        opcode: int16 [N]; `Op.code` of each node.
        dtype: int8 [N]; element type (`DType`), TUPLE for tuple-shaped nodes.
        elements: int64 [N]; elements of the result, summed over tuple leaves.
        nbytes: int64 [N]; bytes of the result, summed over tuple leaves.
        dim_start: int32 [N+1]; node i's dimensions are ``dims[dim_start[i]:dim_start[i+1]]``.
        dims: int64 [D]; dimension sizes, major to minor as in the HLO shape; none for tuples.
        operand_start: int32 [N+1]; node i's operands are ``operands[operand_start[i]:...]``.
        operands: int32 [E]; operand node of each edge.
        control: int32 [C, 2]; control edges (predecessor, successor).
        computation: int32 [N]; index into `computations`.
        computations: callees before callers; the entry is last.
        default: XLA's own decisions, read back.
        in_place: in-place promises.
        source: what rewriting needs.
    """

    name: str
    units: tuple[Unit, ...]
    opcode: NDArray[np.int16]
    dtype: NDArray[np.int8]
    elements: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    dim_start: IntArray
    dims: NDArray[np.int64]
    operand_start: IntArray
    operands: IntArray
    control: IntArray
    computation: IntArray
    computations: tuple[Computation, ...]
    default: Decisions
    in_place: InPlace = field(repr=False)
    source: Source = field(repr=False)

    def __len__(self) -> int:
        """Number of nodes N."""
        return len(self.opcode)

    def __repr__(self) -> str:
        """One line: name, size, fingerprint."""
        return (
            f"Graph({self.name}, {len(self)} nodes, {len(self.operands)} edges, "
            f"{len(self.computations)} computations, {self.fingerprint[:12]})"
        )

    @cached_property
    def ops(self) -> list[Op]:
        """Table row of every node's opcode, N entries."""
        return [OPS[code] for code in self.opcode.tolist()]

    @cached_property
    def operand_lists(self) -> list[list[int]]:
        """Operand nodes of every node, N lists."""
        flat, start = self.operands.tolist(), self.operand_start.tolist()
        return [flat[start[i] : start[i + 1]] for i in range(len(self))]

    @cached_property
    def default_fuse(self) -> list[bool]:
        """Which nodes XLA computes inside their users, N entries."""
        fuse: list[bool] = self.default.fuse.tolist()
        return fuse

    @cached_property
    def user_lists(self) -> list[list[int]]:
        """Nodes that use every node's value (each once), N lists, ascending."""
        users: list[list[int]] = [[] for _ in range(len(self))]
        for node, operands in enumerate(self.operand_lists):
            for operand in set(operands):
                users[operand].append(node)
        return users

    @cached_property
    def dim_lists(self) -> list[list[int]]:
        """Dimension sizes of every node, N lists."""
        flat, start = self.dims.tolist(), self.dim_start.tolist()
        return [flat[start[i] : start[i + 1]] for i in range(len(self))]

    @cached_property
    def executions(self) -> NDArray[np.float64]:
        """float64 [N]; times each node runs per run of the module (`UNKNOWN_TRIPS` where unknown)."""
        per_computation = [1.0] * len(self.computations)
        for i in range(len(self.computations) - 1, -1, -1):
            computation = self.computations[i]
            if computation.parent is not None:
                trips = UNKNOWN_TRIPS if computation.trip_count is None else computation.trip_count
                per_computation[i] = per_computation[computation.parent] * trips
        return np.asarray(per_computation)[self.computation]

    @cached_property
    def default_cluster_count(self) -> int:
        """Clusters of XLA's own decisions."""
        kinds = [unit.kind in (UnitKind.LOOP, UnitKind.LIBRARY) for unit in self.units]
        makes = np.array(kinds, np.bool_)[self.default.unit] & ~self.default.fuse
        views = self.opcode == OP_BY_NAME["bitcast"].code
        return int((makes & ~views).sum())

    @cached_property
    def nested_sizes(self) -> list[int]:
        """Nodes that a node stands for, those of the computations it calls included; N entries."""
        sizes = [1] * len(self)
        for computation in self.computations:
            if computation.caller is not None:
                sizes[computation.caller] += sum(sizes[computation.first : computation.end])
        return sizes

    @property
    def fingerprint(self) -> str:
        """Hex digest of structure, shapes, dtypes and XLA's decisions; not of names or metadata."""
        return str(fact(self, "fingerprint"))

    @property
    def library_nodes(self) -> tuple[list[bool], list[bool]]:
        """Per node: may it sit inside a library cluster, and may it be the root of one?"""
        found: tuple[list[bool], list[bool]] = fact(self, "library_nodes")
        return found

    @property
    def regional(self) -> NDArray[np.bool_]:
        """bool [N]; nodes that a native region may contain as they are, called computations included."""
        found: NDArray[np.bool_] = fact(self, "regional")
        return found

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """What was derived from the graph so far (see `graphopt.hlo.graph.derived`)."""
        return {}

    @cached_property
    def plain_copies(self) -> NDArray[np.bool_]:
        """bool [N]; copies outside fusions: XLA put them there to separate buffers."""
        runtime = np.array([u.kind is UnitKind.RUNTIME for u in self.units], np.bool_)
        copies: NDArray[np.bool_] = np.equal(self.opcode, OP_BY_NAME["copy"].code)
        return copies & runtime[self.default.unit]

    @property
    def masks(self) -> Masks:
        """Legal values of every decision, with the names of the rules that forbid the others."""
        found: Masks = fact(self, "masks")
        return found

    def source_line(self, node: int) -> str:
        """The user's operation name of a node, from HLO metadata; empty if there is none."""
        data = self.source.protos[node].metadata
        return str(OpMetadata.FromString(data).op_name) if data else ""

    def is_tuple(self, node: int) -> bool:
        """True if the node's result is a tuple."""
        return bool(self.dtype[node] == DType.TUPLE)


FROZEN_ROOT: Final = 1
FROZEN_FUSED: Final = 2

UNKNOWN_TRIPS: Final = 16.0
"""Trip count assumed for loops whose count XLA does not know."""
