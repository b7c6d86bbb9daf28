"""An explanation's times: from the kernel bank where it knows any kernel, else from the analytic model."""

from __future__ import annotations

import numpy as np

from graphopt.hlo import Graph
from graphopt.hlo.plan.regions import Region
from graphopt.machine import UnitKind
from graphopt.measure.analytic import COSTS, AnalyticModel
from graphopt.measure.bank.kernels import Kernel, KernelReader, kernels_of
from graphopt.measure.bank.predictor import model_of
from graphopt.measure.plans import Outcome, planned
from graphopt.render.parts import PartTimes
from graphopt.store import Store
from graphopt.store.kernels import get_kernels


def best_times(graph: Graph, store: Store | None = None) -> tuple[PartTimes, str]:
    """The best clock for a graph, with its name for the reader.

    Args:
        graph: whose parts are timed.
        store: the bank; the user's store by default.
    """
    bank = store or Store()
    if bank.exists():
        times = BankTimes(graph, bank)
        known, total = times.coverage(planned(graph, graph.default))
        if known:
            return times, f"kernel bank ({known} of XLA's {total} kernels measured, rest predicted)"
    return AnalyticModel(graph).item_seconds, "analytic model"


class BankTimes:
    """Seconds of parts from measured kernels; others are predicted from those in the store.

    A native region is one kernel: its time is divided among the parts inside as the analytic model
    divides it. What is no kernel (control flow) keeps the analytic model's time.
    """

    def __init__(self, graph: Graph, store: Store) -> None:
        """Trains the model of unmeasured kernels."""
        self.graph = graph
        self.store = store
        self.analytic = AnalyticModel(graph)
        self.reader = KernelReader(graph)
        self.model = model_of(store)

    def coverage(self, outcome: Outcome) -> tuple[int, int]:
        """How many kernels of an outcome the bank knows, and how many there are."""
        kernels = self._kernels(outcome)
        known = get_kernels(self.store, [kernel.key for kernel in kernels.values()])
        return sum(kernel.key in known for kernel in kernels.values()), len(kernels)

    def _kernels(self, outcome: Outcome) -> dict[int, Kernel]:
        return kernels_of(self.reader, outcome.clustering, list(outcome.plans))

    def __call__(self, outcome: Outcome) -> dict[int, float]:
        """Seconds per run of the module of every item, by item."""
        seconds = self.analytic.item_seconds(outcome)
        kernels = self._kernels(outcome)
        if not kernels:
            return seconds
        known = get_kernels(self.store, [kernel.key for kernel in kernels.values()])
        features = np.array([kernel.features for kernel in kernels.values()])
        predicted = self.model.predict(features)[0].tolist()
        members = _members(self.graph, outcome)
        for (item, kernel), guess in zip(kernels.items(), predicted, strict=True):
            ns = known.get(kernel.key, guess) + COSTS.thunk_ns
            self._divide(seconds, item, members.get(item, [item]), ns * 1e-9)
        return seconds

    def _divide(
        self, seconds: dict[int, float], item: int, members: list[int], once_s: float
    ) -> None:
        """Gives a kernel's time to the parts inside it, in proportion to what they have."""
        total_s = once_s * float(self.graph.executions[item])
        present = sum(seconds.get(member, 0.0) for member in members)
        if present <= 0.0:
            seconds[item] = total_s
            return
        for member in members:
            seconds[member] = seconds.get(member, 0.0) * total_s / present


def _members(graph: Graph, outcome: Outcome) -> dict[int, list[int]]:
    """First item of every native region outside of native code -> all items that execute in it."""
    unit = outcome.clustering.unit
    native = [u.kind is UnitKind.NATIVE for u in graph.units]
    owner: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for plan in reversed(outcome.plans):  # callers come after what they call
        caller = plan.items.computation.caller
        inside = owner.get(caller) if caller is not None and native[unit[caller]] else None
        for entry in plan.entries:
            items = entry.items if isinstance(entry, Region) else [entry]
            first = items[0] if inside is None else inside
            for item in items:
                owner[item] = first
                if inside is not None or isinstance(entry, Region):
                    members.setdefault(first, []).append(item)
    return members
