"""Names for the kernels of many decision vectors at once, without forming a single cluster.

Within one graph, what a cluster computes is settled by its root and by which of the nodes above it are
fused. A 64-bit hash of that, computed for all nodes of B vectors together, one dependency depth after the
other, names the cluster. Everything slow (forming the cluster, its time) is done once per name.

Joined roots are named together with the root they join: the nearest earlier one of the same shape and unit.
Native items are grouped into regions by level, as `graphopt.hlo.plan.regions` does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import replacing
from graphopt.machine import UnitKind

Keys = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Ints = NDArray[Any]

_M1: Final = np.uint64(0xBF58476D1CE4E5B9)
_M2: Final = np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)
_M1_INT: Final = int(_M1)
_ALL: Final = (1 << 64) - 1


def mix(values: Keys) -> Keys:
    """SplitMix64's finaliser (Steele et al. 2014): spreads every input bit over all output bits."""
    values = (values ^ (values >> _S1)) * _M1
    values = (values ^ (values >> _S2)) * _M2
    return np.asarray(values ^ (values >> _S3))


_FEW_ROWS: Final = 8
"""Below so many vectors plain loops beat numpy's cost per call."""


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
    """Nodes whose operands are all known: one step of the sweep, in sweep order.

    Attributes:
        nodes: the places of its nodes in sweep order; each has at least one operand.
        sources: int [E]; places of the operands, node after node.
        starts: int [K]; where each node's operands begin.
        factors: uint64 [E]; odd multipliers, one per edge.
        seeds: uint64 [K]; hash constants of the nodes.
    """

    nodes: slice
    sources: Ints
    starts: Ints
    factors: Keys
    seeds: Keys


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
        self.edges = self._edges()
        self.classes = self._join_classes()
        self.callers = [(c.first, c.end, c.caller) for c in graph.computations]

    def _order(self, rng: np.random.Generator) -> list[_Depth]:
        """Groups nodes by depth; `order` lists them so that each depth is one slice."""
        lists = self.graph.operand_lists
        depth = np.zeros(len(lists), np.int32)
        for node, operands in enumerate(lists):
            if operands:
                depth[node] = 1 + max(int(depth[o]) for o in operands)
        self.order = np.argsort(depth, kind="stable")
        self.place = np.argsort(self.order)
        out = []
        bounds = np.searchsorted(depth[self.order], np.arange(int(depth.max(initial=0)) + 2))
        for begin, end in itertools.pairwise(bounds.tolist()[1:]):
            nodes = self.order[begin:end]
            counts = np.array([len(lists[n]) for n in nodes])
            sources = self.place[np.concatenate([np.asarray(lists[n], np.intp) for n in nodes])]
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            factors = rng.integers(1, 1 << 63, len(sources), np.uint64) | np.uint64(1)
            out.append(_Depth(slice(begin, end), sources, starts, factors, self.seeds[nodes]))
        return out

    def _edges(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Per node its hash constant and (operand, multiplier) of its operands, as Python integers."""
        out: list[tuple[int, list[tuple[int, int]]]] = [(int(seed), []) for seed in self.seeds]
        for depth in self.depths:
            sources = self.order[depth.sources].tolist()
            edges = list(zip(sources, depth.factors.tolist(), strict=True))
            bounds = [*depth.starts.tolist(), len(edges)]
            for position, node in enumerate(self.order[depth.nodes].tolist()):
                out[node][1].extend(edges[bounds[position] : bounds[position + 1]])
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
        key = mix(body + self.unit_seeds[unit] + self._written(batch.fields["restructure"]))
        key[~kernel] = 0
        key[kernel & (key == 0)] = 1
        partner = self._join(batch.fields["join"], unit, kernel, key)
        region, region_key, region_node = self._regions(fuse, native, kernel, key, claimed)
        return Signatures(key, native & kernel, partner, region, region_key, region_node)

    def _written(self, codes: NDArray[np.int8]) -> Keys:
        """uint64 [B, N]; tells kernels apart that are written in another way."""
        return np.where(replacing(codes) == codes, np.uint64(0), np.uint64(13))

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
        if len(fuse) < _FEW_ROWS:
            return np.array([self._body_row(row) for row in fuse.tolist()], np.uint64)
        ordered = fuse[:, self.order]
        body = np.empty(fuse.shape, np.uint64)
        body[:] = self.seeds[self.order]
        seen = body * ordered  # what a user sees of a fused operand; nothing of one in memory
        for depth in self.depths:
            terms = seen.take(depth.sources, axis=1)
            terms *= depth.factors
            found = np.add.reduceat(terms, depth.starts, axis=1)
            found += depth.seeds
            found ^= found >> _S3
            found *= _M1
            body[:, depth.nodes] = found
            found *= ordered[:, depth.nodes]
            seen[:, depth.nodes] = found
        return body.take(self.place, axis=1)

    def _body_row(self, fuse: list[bool]) -> list[int]:
        """The same numbers for one vector, node by node."""
        body: list[int] = []
        seen = [0] * len(fuse)  # what a user sees of a fused operand; nothing of one in memory
        for node, (seed, edges) in enumerate(self.edges):
            total = seed
            if edges:
                for source, factor in edges:
                    if seen[source]:
                        total += seen[source] * factor
                total &= _ALL
                total = (total ^ (total >> 31)) * _M1_INT & _ALL
            body.append(total)
            if fuse[node]:
                seen[node] = total
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
        units = unit[np.ix_(rows, members)]
        can = kernel[np.ix_(rows, members)] & self.joining_units[units]
        if len(rows) < _FEW_ROWS:
            for row, u, c, w in zip(
                rows.tolist(), units.tolist(), can.tolist(), wants.tolist(), strict=True
            ):
                _join_row(partner[row], members.tolist(), u, c, w)
            return
        last = np.full(len(rows), -1, np.int32)
        last_unit = np.full(len(rows), -1, np.intp)
        for position, node in enumerate(members.tolist()):
            here, able = units[:, position], can[:, position]
            joins = wants[:, position] & able & (last >= 0) & (last_unit == here)
            partner[rows[joins], node] = last[joins]
            stays = able & ~joins
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
        level = self._levels(counts, item & ~native)
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

    def _levels(self, native: Bools, other: Bools) -> Ints:
        """int16 [B, N]; how often a path switches between native and other items on its way there."""
        if len(native) < _FEW_ROWS:
            rows = zip(native.tolist(), other.tolist(), strict=True)
            return np.array([self._level_row(*row) for row in rows], np.int16)
        count = native.shape[1]
        is_native = native[:, self.order].astype(np.int16)
        is_other = other[:, self.order].astype(np.int16)
        both = np.zeros((2, len(native), count), np.int16)  # as seen by native users, by others
        level = np.zeros(native.shape, np.int16)
        for depth in self.depths:
            here = depth.nodes
            for_native, for_other = np.maximum.reduceat(
                both.take(depth.sources, axis=2), depth.starts, axis=2
            )
            level[:, here] = for_native
            # A native item raises the level of other users by one, and the other way round.
            np.maximum(for_other, (for_native + 1) * is_native[:, here], out=both[1, :, here])
            np.maximum(for_native, (for_other + 1) * is_other[:, here], out=both[0, :, here])
        return level.take(self.place, axis=1)

    def _level_row(self, native: list[bool], other: list[bool]) -> list[int]:
        """The same numbers for one vector, node by node."""
        level: list[int] = []
        seen_native = [0] * len(native)
        seen_other = [0] * len(native)
        for node, (_, edges) in enumerate(self.edges):
            for_native = for_other = 0
            if edges:
                for source, _ in edges:
                    if seen_native[source] > for_native:
                        for_native = seen_native[source]
                    if seen_other[source] > for_other:
                        for_other = seen_other[source]
                # A native item raises the level of other users by one, and the other way round.
                seen_other[node] = max(for_other, for_native + 1) if native[node] else for_other
                seen_native[node] = max(for_native, for_other + 1) if other[node] else for_native
            level.append(for_native)
        return level


def _join_row(
    partner: Ints, members: list[int], units: list[int], can: list[bool], wants: list[bool]
) -> None:
    """The rule of `Namer._join_class` for one vector."""
    last = last_unit = -1
    for node, unit, able, joins in zip(members, units, can, wants, strict=True):
        if not able:
            continue
        if joins and last >= 0 and last_unit == unit:
            partner[node] = last
        else:
            last, last_unit = node, unit


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
