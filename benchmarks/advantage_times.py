"""``python -m benchmarks.advantage_times RUN/policy``: what choosing alternatives costs in XLA's compile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from benchmarks.policy_times import graph_of
from benchmarks.progress import counted, ended
from graphopt.costs.model import CostModel
from graphopt.hlo import Graph
from graphopt.hlo.gc_pause import gc_paused
from graphopt.policy.advantages.checkpoint import load_advantages
from graphopt.policy.advantages.decider import AdvantagePolicy
from graphopt.policy.advantages.encoding import Encoder
from graphopt.policy.alternatives.table import alternatives
from graphopt.policy.heuristic.steps import STEPS, choose, heuristic_steps

HEADINGS = (
    "nodes", "alternatives", "heuristic ms", "listing ms", "columns ms", "a state ms", "choice ms", "taken",
)  # fmt: skip


@dataclass(frozen=True)
class Times:
    """Print a table of milliseconds, medians, garbage collection paused as in a compile.

    Listing the alternatives and their columns is done once per graph; "a state" is encoding and scoring, once
    per alternative taken and once more; "choice" is everything, the heuristic included.
    """

    policy: Annotated[Path, tyro.conf.Positional]
    """The policy/ folder of a run of graphopt advantages."""
    sizes: tuple[int, ...] = (500, 2_000, 10_000)
    """Nodes of graphs, about."""
    repeats: int = 15
    """Timed calls of each."""

    def run(self) -> None:
        """Prints the table."""
        policy = load_advantages(self.policy).decider()
        print(f"| {' | '.join(HEADINGS)} |")
        print("| --- " * len(HEADINGS) + "|")
        with counted(self.sizes, "graphs timed") as rest:
            for size in rest:
                graph = graph_of(size)
                _ = graph.masks  # needed by any policy
                with gc_paused():
                    cells = self._row(policy, graph)
                print(f"| {' | '.join(cells)} |", flush=True)

    def _row(self, policy: AdvantagePolicy, graph: Graph) -> list[str]:
        model = CostModel(graph)
        listed = alternatives(graph, model, limit=policy.rule.sites, program=False)
        encoder = Encoder(listed, model)
        scorer = policy.network.of(encoder.graph)
        flat = listed.flat(heuristic_steps(graph, STEPS, model))
        times = (
            self._ms(lambda: choose(graph)),
            self._ms(lambda: alternatives(graph, model, limit=policy.rule.sites, program=False)),
            self._ms(lambda: policy.network.of(Encoder(listed, model).graph)),
            self._ms(lambda: scorer.score(encoder.state(flat))),
            self._ms(lambda: policy.choose(graph)),
        )
        taken = len(policy.decide(graph, model).taken)
        count = len(encoder.state(flat))
        return [f"{len(graph):,}", str(count), *(f"{ms:.1f}" for ms in times), str(taken)]

    def _ms(self, call: Callable[[], Any]) -> float:
        """Median milliseconds of some calls after a first one."""
        call()
        found = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
        return 1e3 * float(np.median(found))


if __name__ == "__main__":
    sys.exit(ended(tyro.cli(Times, prog="python -m benchmarks.advantage_times").run))
