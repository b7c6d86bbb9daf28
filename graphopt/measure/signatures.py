"""Names for the kernels of many decision vectors at once, without forming a single cluster.

Within one graph, what a cluster computes is settled by its root and by which of the nodes above it are
fused. A 64-bit hash of that, computed for all nodes of B vectors together, one dependency depth after the
other, names the cluster. Everything slow (forming the cluster, its time) is done once per name.

Joined roots are named together with the root they join: the nearest earlier one of the same shape and unit.
Native items are grouped into regions by level, as `graphopt.hlo.regions` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Graph
from graphopt.hlo.ops import OpKind
from graphopt.machine import UnitKind

Keys = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Ints = NDArray[Any]

_M1: Final = np.uint64(0xBF58476D1CE4E5B9)
_M2: Final = np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(values: Keys) -> Keys:
    """SplitMix64's finaliser (Steele et al. 2014): spreads every input bit over all output bits."""
    values = (values ^ (values >> _S1)) * _M1
    values = (values ^ (values >> _S2)) * _M2
    return np.asarray(values ^ (values >> _S3))


@dataclass(frozen=True)
class Signatures:
    """Kernels of B vectors over N nodes.

    Attributes:
        key: uint64 [B, N]; name of the kernel that the node is the root of; 0 where it is none.
        native: bool [B, N]; the kernel is part of native code.
        partner: int32 [B, N]; root that the node joins; -1 where it does not.
        region: int64 [B, N]; number of the native region within the vector; -1 outside.
        region_key: uint64 [B, G]; name of each region, over the G numbers in use; 0 where unused.
        region_node: int32 [G]; a node that runs as often as the region: its computation's first.
    """

    key: Keys
    native: Bools
    partner: Ints
    region: Ints
    region_key: Keys
    region_node: Ints


@dataclass(frozen=True)
class _Depth:
    """Nodes whose operands are all known: one step of the sweep.

    Attributes:
        nodes: int [K]; with at least one operand.
        sources: int [E]; operands, node after node.
        starts: int [K]; where each node's operands begin.
        factors: uint64 [E]; odd multipliers, one per edge.
    """

    nodes: Ints
    sources: Ints
    starts: Ints
    factors: Keys


class Namer:
    """Computes `Signatures` for one graph."""

    def __init__(self, graph: Graph) -> None:
        """Orders nodes by depth and draws the hash constants."""
        self.graph = graph
        rng = np.random.default_rng(len(graph))
        self.seeds = mix(rng.integers(1, 1 << 63, len(graph), np.uint64))
        kinds = [unit.kind for unit in graph.units]
        self.unit_seeds = mix(rng.integers(1, 1 << 63, len(kinds), np.uint64))
        self.native_units = np.array([k is UnitKind.NATIVE for k in kinds], np.bool_)
        self.joining_units = np.array(
            [k in (UnitKind.NATIVE, UnitKind.LOOP) for k in kinds], np.bool_
        )
        ops = graph.ops
        self.structure = np.array([op.kind is OpKind.STRUCTURE for op in ops], np.bool_)
        self.control = np.array([op.kind is OpKind.CONTROL for op in ops], np.bool_)
        self.bitcast = np.array([op.name == "bitcast" for op in ops], np.bool_)
        self.kernel = ~(self.structure | self.control | self.bitcast)
        self.neutral = self.structure | self.bitcast
        self.bitcast_nodes = np.flatnonzero(self.bitcast)
        self.bitcast_sources = np.array(
            [graph.operand_lists[n][0] for n in self.bitcast_nodes], np.intp
        )
        self.depths = self._order(rng)
        self.classes = self._join_classes()
        self.callers = [(c.first, c.end, c.caller) for c in graph.computations]

    def _order(self, rng: np.random.Generator) -> list[_Depth]:
        graph = self.graph
        depth = np.zeros(len(graph), np.int32)
        inside: dict[int, list[int]] = {}
        for i, computation in enumerate(graph.computations):
            if computation.caller is not None:
                inside.setdefault(computation.caller, []).append(i)
        lists = graph.operand_lists
        for node in range(len(graph)):
            if lists[node]:
                depth[node] = 1 + max(int(depth[o]) for o in lists[node])
        out = []
        for level in range(1, int(depth.max(initial=0)) + 1):
            nodes = np.flatnonzero(depth == level)
            counts = np.array([len(lists[n]) for n in nodes])
            sources = np.concatenate([np.asarray(lists[n], np.intp) for n in nodes])
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            factors = rng.integers(1, 1 << 63, len(sources), np.uint64) | np.uint64(1)
            out.append(_Depth(nodes, sources, starts, factors))
        return out

    def _join_classes(self) -> list[Ints]:
        """Roots that might share a loop: same computation, shape and layout; at least two."""
        graph = self.graph
        classes: dict[tuple[Any, ...], list[int]] = {}
        may_join = graph.masks.join[:, 1]
        for node in range(len(graph)):
            if not self.kernel[node] or graph.is_tuple(node) or not graph.elements[node]:
                continue
            if graph.ops[node].name == "dynamic-update-slice":
                continue
            layout = tuple(graph.source.shapes[node].layout.minor_to_major)
            name = (int(graph.computation[node]), tuple(graph.dim_lists[node]), layout)
            classes.setdefault(name, []).append(node)
        return [
            np.asarray(members)
            for members in classes.values()
            if len(members) > 1 and may_join[members].any()
        ]

    def name(self, batch: DecisionBatch) -> Signatures:
        """Signatures of B vectors."""
        fuse = batch.fields["fuse"]
        unit = batch.fields["unit"].astype(np.intp)
        claimed = self._claim(unit)
        body = self._bodies(fuse)
        kernel = self._kernels(fuse)
        native = self.native_units[unit]
        key = mix(body + self.unit_seeds[unit])
        key[~kernel] = 0
        key[kernel & (key == 0)] = 1
        partner = self._join(batch.fields["join"], unit, kernel, key)
        region, region_key, region_node = self._regions(fuse, native, kernel, key, claimed)
        return Signatures(key, native & kernel, partner, region, region_key, region_node)

    def _claim(self, unit: Ints) -> list[Bools | None]:
        """Gives all that native loops contain to the native unit, in place.

        Returns:
            per computation, bool [B]: native code contains it; None where no vector does.
        """
        claimed: list[Bools | None] = [None] * len(self.callers)
        for index in range(len(self.callers) - 1, -1, -1):
            first, end, caller = self.callers[index]
            if caller is None:
                continue
            inside = self.native_units[unit[:, caller]]
            if inside.any():
                unit[:, first:end] = np.where(
                    inside[:, None], unit[:, [caller]], unit[:, first:end]
                )
                claimed[index] = inside
        return claimed

    def _bodies(self, fuse: Bools) -> Keys:
        """uint64 [B, N]; hash of what is computed at each node if it is a root."""
        body = np.broadcast_to(self.seeds, fuse.shape).copy()
        masked = np.zeros(fuse.shape, np.uint64)  # body where fused, else 0
        masked[fuse] = body[fuse]
        for depth in self.depths:
            terms = masked[:, depth.sources] * depth.factors
            total = np.add.reduceat(terms, depth.starts, axis=1)
            found = mix(self.seeds[depth.nodes] + total)
            body[:, depth.nodes] = found
            masked[:, depth.nodes] = np.where(fuse[:, depth.nodes], found, np.uint64(0))
        return body

    def _kernels(self, fuse: Bools) -> Bools:
        """bool [B, N]; the node is the root of something that takes time."""
        kernel = ~fuse & self.kernel
        # A view of a fused value writes that value to memory.
        if len(self.bitcast_nodes):
            kernel[:, self.bitcast_nodes] = (
                ~fuse[:, self.bitcast_nodes] & fuse[:, self.bitcast_sources]
            )
        return kernel

    def _join(self, join: Bools, unit: Ints, kernel: Bools, key: Keys) -> Ints:
        partner = np.full(join.shape, -1, np.int32)
        for members in self.classes:
            wants = join[:, members] & kernel[:, members]
            rows = np.flatnonzero(wants.any(axis=1))
            if len(rows):
                self._join_class(rows, members, wants[rows], unit, kernel, partner)
        b, n = np.nonzero(partner >= 0)
        if len(b):
            own, other = key[b, n], key[b, partner[b, n]]
            key[b, n] = mix(own + other * np.uint64(3)) | np.uint64(1)
        return partner

    def _join_class(
        self, rows: Ints, members: Ints, wants: Bools, unit: Ints, kernel: Bools, partner: Ints
    ) -> None:
        last = np.full(len(rows), -1, np.int32)
        last_unit = np.full(len(rows), -1, np.intp)
        for position, node in enumerate(members.tolist()):
            here = unit[rows, node]
            can = kernel[rows, node] & self.joining_units[here]
            joins = wants[:, position] & can & (last >= 0) & (last_unit == here)
            partner[rows[joins], node] = last[joins]
            stays = can & ~joins
            last[stays] = node
            last_unit[stays] = here[stays]

    def _regions(
        self, fuse: Bools, native: Bools, kernel: Bools, key: Keys, claimed: list[Bools | None]
    ) -> tuple[Ints, Keys, Ints]:
        """Region numbers: level within its computation, the computations numbered apart."""
        item = (kernel | self.control) & ~fuse
        counts = item & native
        region = np.full(fuse.shape, -1, np.int64)
        if not counts.any():
            return region, np.zeros((len(fuse), 1), np.uint64), np.zeros(1, np.int32)
        level = self._levels(fuse, counts, item & ~native)
        width = int(level.max()) + 1
        first = np.array([c[0] for c in self.callers])
        region[:] = np.where(counts, self.graph.computation * width + level, -1)
        # What native loops contain belongs to the region of the outermost loop.
        for index in range(len(self.callers) - 1, -1, -1):
            inside = claimed[index]
            if inside is None:
                continue
            begin, end, caller = self.callers[index]
            rows = np.flatnonzero(inside)
            block = region[rows, begin:end]
            block[...] = np.where(
                (kernel | self.control)[rows, begin:end], region[rows, caller][:, None], -1
            )
            region[rows, begin:end] = block
        total = width * len(self.callers)
        self._release_single(region, native, key, total)
        region_key = _sum_by(region, key, total)
        return region, region_key, np.repeat(first, width).astype(np.int32)

    def _release_single(self, region: Ints, native: Bools, key: Keys, total: int) -> None:
        """A single straight-line item is no region: it runs as a kernel of its own."""
        b, n = np.nonzero(region >= 0)
        index = b * total + region[b, n]
        alone = (np.bincount(index, minlength=len(region) * total)[index] == 1) & ~self.control[n]
        b, n = b[alone], n[alone]
        region[b, n] = -1
        native[b, n] = False
        key[b, n] = mix(key[b, n] + np.uint64(11)) | np.uint64(1)

    def _levels(self, fuse: Bools, native: Bools, other: Bools) -> Ints:
        """int16 [B, N]; how often a path switches between native and other items on its way there."""
        own = np.zeros(fuse.shape, np.int16)
        rest = np.zeros(fuse.shape, np.int16)
        level = np.zeros(fuse.shape, np.int16)
        for depth in self.depths:
            nodes = depth.nodes
            for_native = np.maximum.reduceat(own[:, depth.sources], depth.starts, axis=1)
            for_other = np.maximum.reduceat(rest[:, depth.sources], depth.starts, axis=1)
            level[:, nodes] = for_native
            rest[:, nodes] = np.where(
                native[:, nodes], np.maximum(for_other, for_native + 1), for_other
            )
            own[:, nodes] = np.where(
                other[:, nodes], np.maximum(for_native, for_other + 1), for_native
            )
        return level


def _sum_by(region: Ints, key: Keys, total: int) -> Keys:
    """uint64 [B, total]; wrapping sums of the mixed keys of each region."""
    b, n = np.nonzero(region >= 0)
    index = b * total + region[b, n]
    values = mix(key[b, n] + np.uint64(7))
    low = np.bincount(
        index, (values & np.uint64(0xFFFFFFFF)).astype(np.float64), len(region) * total
    )
    high = np.bincount(index, (values >> np.uint64(32)).astype(np.float64), len(region) * total)
    # Sums of up to 2**20 numbers below 2**32 are exact in float64.
    mixed = mix(low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32)))
    used = np.bincount(index, minlength=len(region) * total) > 0
    return np.where(used, mixed | np.uint64(1), np.uint64(0)).reshape(len(region), total)
