"""The kernel bank as a scorer: module time as a sum over kernels, thousands of vectors per second.

Score = sum over kernels of time x executions, plus a dispatch cost per thunk and per loop iteration. Native
regions count as measured whole, else as predicted whole; without a trained model they are the sum of their
items. What the additive form leaves out (overlap of independent thunks, caches shared between kernels) is the
error that ``python -m benchmarks bank`` reports.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphOptError
from graphopt.hlo import DecisionBatch, Decisions, Graph, Restructured, apply_restructures
from graphopt.hlo.graph.graph import UNKNOWN_TRIPS
from graphopt.hlo.plan.regions import Region
from graphopt.hlo.restructure import replacing
from graphopt.hlo.rewrite import plan
from graphopt.measure.bank.kernels import kernels_of
from graphopt.measure.bank.known_times import KnownTimes
from graphopt.measure.bank.predictor import KernelModel, model_of
from graphopt.measure.bank.pricing import KernelPricer, Request
from graphopt.measure.bank.profile import DISPATCH_NS
from graphopt.measure.bank.regions import RegionPricer
from graphopt.measure.bank.signatures import Namer, Signatures
from graphopt.measure.scoring import Scores
from graphopt.store import Store
from graphopt.store.kernels import Kernel, get_kernels

THUNK_NS: Final = DISPATCH_NS
"""Dispatch of one thunk beside the kernel itself."""

ITERATION_NS: Final = 100.0
"""One iteration of a loop that the thunk executor runs, beside its thunks."""

KEPT_REPLACEMENTS: Final = 32
"""Restructured graphs whose scorers are kept."""

CALL_NS: Final = 3000.0
"""A call of the module from Python."""


class Profiler(Protocol):
    """Measures kernels: `graphopt.measure.children.runner.Runner`, or who has it done elsewhere."""

    def profile(self, decisions: Decisions, runs: int = 5, /) -> list[tuple[Kernel, int, float]]:
        """Kernels of a variant in place: (kernel, first item, executions per run); empty if it fails."""
        ...


class BankScorer:
    """Scores decision vectors of one graph from measured and predicted kernel times.

    Attributes:
        name: ``bank``.
        graph: whose vectors it scores.
        deterministic: equal vectors get equal scores while the bank does not change.
        trips: float64 [M]; executions of each computation per run; measured ones where a profile told.
    """

    name = "bank"
    deterministic = True

    def __init__(
        self,
        graph: Graph,
        store: Store | None = None,
        model: KernelModel | None = None,
        pessimism: float = 0.0,
    ) -> None:
        """Prepares names and prices; nothing is compiled.

        Args:
            graph: whose vectors are scored.
            store: the bank; None predicts everything.
            model: of unmeasured kernels; trained from the store by default.
            pessimism: see `KernelPricer`.
        """
        self.graph = graph
        self.store = store
        if model is None:
            model = model_of(store)
        self.namer = Namer(graph)
        self.pricer = KernelPricer(graph, store, model, pessimism)
        self.table = KnownTimes()
        self.regions = KnownTimes()
        self.region_pricer = RegionPricer(model, pessimism)
        self.executions = np.minimum(graph.executions, 1e9)
        self._loops = self._loop_costs()
        self._default_s: float | None = None
        self._replaced: OrderedDict[bytes, tuple[Restructured, BankScorer]] = OrderedDict()

    def _loop_costs(self) -> list[tuple[int, float]]:
        """(loop, nanoseconds of its iterations when the thunk executor runs it)."""
        out = []
        for computation in self.graph.computations:
            caller = computation.caller
            if caller is None or self.graph.ops[caller].name != "while":
                continue
            trips = UNKNOWN_TRIPS if computation.trip_count is None else computation.trip_count
            times = float(self.executions[caller]) * min(float(trips), 1e9)
            out.append((caller, ITERATION_NS * times / 2))  # body and condition: half each
        return out

    @property
    def default_s(self) -> float:
        """Score of XLA's own decisions."""
        if self._default_s is None:
            batch = DecisionBatch.stack([self.graph.default])
            self._default_s = float(self.score(batch).seconds[0])
        return self._default_s

    def score(self, batch: DecisionBatch) -> Scores:
        """Predicted seconds of B vectors.

        Vectors that replace operations are scored on the graph that results, which costs a rebuild for
        every new set of replacements.
        """
        replaced = np.asarray(replacing(batch.fields["restructure"]).any(axis=1))
        if replaced.any():
            return self._score_mixed(batch, replaced)
        return self._score_plain(batch)

    def _score_mixed(self, batch: DecisionBatch, replaced: NDArray[np.bool_]) -> Scores:
        """Vectors with the same replacements are scored together, on the graph that results."""
        seconds = np.zeros(len(batch))
        reasons: list[str | None] = [None] * len(batch)
        measured = known = 0
        for rows in _equal_rows(replacing(batch.fields["restructure"])):
            some = DecisionBatch({f: v[rows] for f, v in batch.fields.items()})
            try:
                scores = (
                    self._score_plain(some) if not replaced[rows[0]] else self._score_after(some)
                )
            except GraphOptError as error:
                seconds[rows] = np.nan
                for row in rows.tolist():
                    reasons[row] = error.what
                continue
            seconds[rows] = scores.seconds
            measured, known = measured + scores.measured, known + scores.known
        return Scores(seconds, tuple(reasons), measured, known)

    def _score_after(self, batch: DecisionBatch) -> Scores:
        """Scores vectors that all replace the same operations in the same way."""
        after, scorer = self._after(replacing(batch.fields["restructure"][0]))
        return scorer._score_plain(after.carry_batch(batch))

    def _settled(self, decisions: Decisions) -> tuple[BankScorer, Decisions]:
        """The scorer of the graph that a vector's replacements lead to, and the vector on it."""
        codes = replacing(decisions.restructure)
        if not codes.any():
            return self, decisions
        after, scorer = self._after(codes)
        return scorer, after.carry(decisions)

    def _after(self, codes: NDArray[np.int8]) -> tuple[Restructured, BankScorer]:
        """The graph with these replacements, and its scorer; remembered.

        Raises:
            GraphOptError: the replacements cannot be made together.
        """
        key = codes.tobytes()
        found = self._replaced.get(key)
        if found is None:
            after = apply_restructures(self.graph, codes)
            scorer = BankScorer(after.graph, self.store, self.pricer.model, self.pricer.pessimism)
            found = (after, scorer)
            while len(self._replaced) >= KEPT_REPLACEMENTS:
                self._replaced.popitem(last=False)
            self._replaced[key] = found
        self._replaced.move_to_end(key)
        return found

    def _score_plain(self, batch: DecisionBatch) -> Scores:
        before = self.pricer.known, self.pricer.predicted
        signatures = self.namer.name(batch)
        times = self.table.get(signatures.key)
        missing = (signatures.key != 0) & np.isnan(times)
        if missing.any():
            self._price(batch, signatures, missing)
            times = self.table.get(signatures.key)
        times = np.where(signatures.key == 0, 0.0, times)
        seconds = self._total(batch, signatures, times) * 1e-9
        return Scores(
            seconds=seconds,
            reasons=(None,) * len(seconds),
            measured=self.pricer.predicted - before[1],
            known=self.pricer.known - before[0],
        )

    def _price(
        self, batch: DecisionBatch, signatures: Signatures, missing: NDArray[np.bool_]
    ) -> None:
        rows, nodes = np.nonzero(missing)
        _, first = np.unique(signatures.key[rows, nodes], return_index=True)
        rows, nodes = rows[first], nodes[first]
        order = np.argsort(rows, kind="stable")
        rows, nodes = rows[order], nodes[order]
        requests = []
        for row in np.unique(rows).tolist():
            mine = nodes[rows == row]
            columns = (mine, signatures.partner[row, mine], signatures.native[row, mine])
            roots = list(zip(*(column.tolist() for column in columns), strict=True))
            requests.append(Request(batch[row], roots))
        ns, features = self.pricer.price(requests)
        self.table.put(signatures.key[rows, nodes], ns)
        inside = signatures.native[rows, nodes]
        self.region_pricer.learn(signatures.key[rows, nodes][inside], features[inside])

    def _total(
        self, batch: DecisionBatch, signatures: Signatures, times: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """float64 [B]; nanoseconds."""
        spent = times * self.executions
        inside, region_ns = self._whole_regions(signatures)
        total = spent.sum(axis=1) + CALL_NS
        total += region_ns - np.where(inside, spent, 0.0).sum(axis=1)
        used = signatures.region_key != 0
        total += (used * self.executions[signatures.region_node] * THUNK_NS).sum(axis=1)
        for loop, ns in self._loops:
            total += np.where(signatures.region[:, loop] >= 0, 0.0, ns)
        return np.asarray(total)

    def _whole_regions(
        self, signatures: Signatures
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Regions that were measured, or can be predicted, whole.

        Returns:
            bool [B, N], nodes of such regions; float64 [B], their nanoseconds per run.
        """
        used = signatures.region_key != 0
        ns = self.regions.get(signatures.region_key)
        predicted = self.region_pricer.price(signatures, used & np.isnan(ns), self.executions)
        ns = np.where(np.isnan(ns), predicted, ns)
        known = ~np.isnan(ns) & used
        times = np.where(known, ns, 0.0) * self.executions[signatures.region_node]
        index = np.maximum(signatures.region, 0)
        inside = (signatures.region >= 0) & np.take_along_axis(known, index, axis=1)
        return inside, times.sum(axis=1)

    def profile(self, runner: Profiler, decisions: Decisions, runs: int = 5) -> int:
        """Measures all kernels of one vector in place, into the bank and this scorer.

        Returns:
            kernels measured; 0 if the vector failed.
        """
        found = runner.profile(decisions, runs)
        if found:
            scorer, vector = self._settled(decisions)
            scorer._take(vector, found)
            self._default_s = None
        return len(found)

    def _take(self, decisions: Decisions, found: list[tuple[Kernel, int, float]]) -> None:
        """Takes one profile, made of this graph, into the tables."""
        batch = DecisionBatch.stack([decisions])
        signatures = self.namer.name(batch)
        by_item = {item: (kernel.ns, executions) for kernel, item, executions in found}
        self._learn_trips(by_item)
        self._learn(decisions, signatures, {i: ns for i, (ns, _) in by_item.items()})

    def _learn_trips(self, by_item: dict[int, tuple[float, float]]) -> None:
        """True executions of computations whose trip count XLA did not know."""
        seen: dict[int, float] = {}
        for item, (_, executions) in by_item.items():
            index = int(self.graph.computation[item])
            seen[index] = max(seen.get(index, 0.0), executions)
        for index, executions in seen.items():
            computation = self.graph.computations[index]
            old = float(self.executions[computation.first])
            if executions > 0 and abs(executions - old) > 0.01 * old:
                self.executions[computation.first : computation.end] *= executions / old
                self._loops = self._loop_costs()
                self.region_pricer.forget()

    def _learn(
        self, decisions: Decisions, signatures: Signatures, measured: dict[int, float]
    ) -> None:
        clustering, plans = plan(self.graph, decisions)
        for plan_ in plans:
            for entry in plan_.entries:
                item = entry.items[0] if isinstance(entry, Region) else entry
                if item not in measured:
                    continue
                if isinstance(entry, Region):
                    self._learn_region(signatures, entry, measured[item])
                    continue
                cluster = clustering.clusters.get(item)
                if cluster is not None and len(cluster.outputs) > 1:
                    continue  # found by its merged key when it is priced
                key = signatures.key[0, item]
                if key != 0 and signatures.partner[0, item] < 0:
                    self.table.put(np.asarray([key]), np.asarray([measured[item] + THUNK_NS]))

    def _learn_region(self, signatures: Signatures, region: Region, ns: float) -> None:
        numbers = {int(signatures.region[0, item]) for item in region.items}
        numbers.discard(-1)
        if len(numbers) != 1:
            return
        number = numbers.pop()
        members = np.flatnonzero(signatures.region[0] == number)
        outer = self.graph.computation[members] == self.graph.computation[region.items[0]]
        if set(members[outer].tolist()) <= set(region.items):  # not a piece of a cut run
            key = signatures.region_key[0, number]
            self.regions.put(np.asarray([key]), np.asarray([ns]))

    def recall(self, decisions: Decisions) -> int:
        """Takes what the bank knows of one vector's regions into this scorer; kernels come by name.

        Returns:
            regions recalled.
        """
        if self.store is None or not self.store.exists():
            return 0
        scorer, decisions = self._settled(decisions)
        if scorer is not self:
            return scorer.recall(decisions)
        clustering, plans = plan(self.graph, decisions)
        kernels = kernels_of(self.pricer.reader, clustering, plans)
        known = get_kernels(self.store, [k.key for k in kernels.values()])
        signatures = self.namer.name(DecisionBatch.stack([decisions]))
        count = 0
        for plan_ in plans:
            for entry in plan_.entries:
                kernel = kernels.get(entry.items[0]) if isinstance(entry, Region) else None
                if isinstance(entry, Region) and kernel is not None and kernel.key in known:
                    self._learn_region(signatures, entry, known[kernel.key])
                    count += 1
        return count


def _equal_rows(codes: NDArray[np.int8]) -> list[NDArray[np.intp]]:
    """Row numbers of int8 [B, N], grouped by equal rows."""
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(codes):
        groups.setdefault(values.tobytes(), []).append(row)
    return [np.asarray(rows, np.intp) for rows in groups.values()]
