"""``python -m benchmarks agents``: what agents reach in the environment, and what of it is true.

Every agent plays every graph through an environment of its own, rewarded by the kernel bank of the user's
store. At the end the best vectors of every `MEASURED_EVERY`-th graph are measured as whole modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.progress import counted
from graphopt.env import FusionPlacementEnv, GraphItem
from graphopt.env.sources import GraphSources
from graphopt.hlo import DecisionBatch, Decisions
from graphopt.learn.search import ENGINES, Budget, SearchResult
from graphopt.measure.scoring import Scores
from graphopt.policy.heuristic.steps import heuristic

CHANGE: Final = 0.05
"""The random agent redraws this share of XLA's decisions every other time."""

EVALUATIONS: Final = 60
MAX_NODES: Final = 500
"""Larger graphs are left out: a random vector names hundreds of kernels that were never seen."""

MEASURED_EVERY: Final = 16


class EnvironmentScorer:
    """What a search sees of an environment: rewards of batches, turned back into seconds.

    Attributes:
        name: the reward source's.
        graph: the graph at hand.
        deterministic: as the reward source says.
    """

    def __init__(self, env: FusionPlacementEnv) -> None:
        """Takes an environment on the ``log_ratio`` scale that has been reset."""
        self.env = env
        self.name = env.source.name
        self.graph = env.graph
        self.deterministic = env.source.deterministic

    @property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions."""
        return self.env.scorer.default_s

    def score(self, batch: DecisionBatch) -> Scores:
        """Seconds that the rewards stand for; a failure counts as its reward says."""
        rewards = self.env.score_batch(batch)
        return Scores(self.default_s * np.exp(-rewards), (None,) * len(batch))


@dataclass(frozen=True)
class Played:
    """What one agent reached on one graph.

    Attributes:
        reward: of its best vector, ``log(default seconds / seconds)`` by the reward source.
        evaluations: vectors scored.
        found_at: evaluations until the best was found; 0 where XLA's default stayed the best.
        best: the vector.
        measured: the reward of the best vector when the whole module is measured; None if it was not.
    """

    reward: float
    evaluations: int
    found_at: int
    best: Decisions = field(repr=False, compare=False)
    measured: float | None = None

    @property
    def speedup(self) -> float:
        """Default seconds / seconds, by the reward source."""
        return float(np.exp(self.reward))


@dataclass(frozen=True)
class AgentRow:
    """All agents on one graph.

    Attributes:
        program: name of the graph.
        nodes: its size.
        played: agent -> outcome.
    """

    program: str
    nodes: int
    played: dict[str, Played]


def random_agent(env: FusionPlacementEnv, evaluations: int, seed: int) -> Played:
    """The best of so many legal actions: half near XLA's decisions, half anything."""
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    best = Played(0.0, evaluations, 0, env.graph.default)
    for index in range(evaluations):
        env.reset(options={"graph": 0})
        near = env.graph.masks.sample(rng, env.graph.default, CHANGE)
        action = near if index % 2 else env.action_space.sample()
        reward = float(env.step(action)[1])
        if reward > best.reward:
            decisions, _ = env.codec.decode(action, env.rows, env.strict)
            best = Played(reward, evaluations, index + 1, decisions)
    return best


def heuristic_agent(env: FusionPlacementEnv, evaluations: int, seed: int) -> Played:
    """The hand-written heuristic: one vector."""
    env.reset(options={"graph": 0})
    decisions = heuristic(env.graph) or env.graph.default
    return Played(float(env.step(decisions)[1]), 1, 1, decisions)


def _search_agent(
    engine: Callable[[EnvironmentScorer, Budget, int], SearchResult],
) -> Callable[[FusionPlacementEnv, int, int], Played]:
    def play(env: FusionPlacementEnv, evaluations: int, seed: int) -> Played:
        env.reset(options={"graph": 0})
        found = engine(EnvironmentScorer(env), Budget(evaluations), seed)
        last = found.history[-1][0] if found.history else 0
        return Played(float(np.log(found.speedup)), found.evaluations, last, found.decisions)

    return play


AGENTS: Final[dict[str, Callable[[FusionPlacementEnv, int, int], Played]]] = {
    "random": random_agent,
    "heuristic": heuristic_agent,
    **{name: _search_agent(engine) for name, engine in ENGINES.items()},
}
"""Name -> agent; all take (environment, most evaluations, seed)."""


def play(
    item: GraphItem, source: str = "bank", evaluations: int = EVALUATIONS, seed: int = 0
) -> AgentRow:
    """Every agent on one graph, each through an environment of its own."""
    played = {}
    for name, agent in AGENTS.items():
        env = FusionPlacementEnv(graphs=[item], reward=source, details=False)
        env.reset(options={"graph": 0})
        played[name] = agent(env, evaluations, seed)
        env.close()
    return AgentRow(item.name, len(item.graph), played)


def measure(item: GraphItem, row: AgentRow) -> AgentRow:
    """The same row with the best vectors measured as whole modules; failures score as in the environment."""
    env = FusionPlacementEnv(graphs=[item], reward="measured", details=False)
    env.reset(options={"graph": 0})
    rewards = env.score_batch(DecisionBatch.stack([p.best for p in row.played.values()]))
    env.close()
    played = {
        name: Played(p.reward, p.evaluations, p.found_at, p.best, float(reward))
        for (name, p), reward in zip(row.played.items(), rewards, strict=True)
    }
    return AgentRow(row.program, row.nodes, played)


def graphs_of(graphs: GraphSources, max_nodes: int | None = None) -> list[GraphItem]:
    """The graphs that are played."""
    return list(FusionPlacementEnv(graphs=graphs, max_nodes=max_nodes).items)


def bench_agents(console: Console, budget_s: float) -> None:
    """Plays the train split of the corpus; prints a line per graph and the table of agents."""
    items = graphs_of("train", MAX_NODES)
    rows: list[AgentRow] = []
    with counted(items, "graphs played") as rest:
        for item in rest:
            rows.append(play(item))
            console.print(f"{len(rows)}/{len(items)} {_line(rows[-1])}", highlight=False)
    with counted(range(0, len(rows), MEASURED_EVERY), "rows measured") as numbers:
        for number in numbers:
            rows[number] = measure(items[number], rows[number])
            console.print(f"measured: {_line(rows[number])}", highlight=False)
    console.print(agents_table(rows))


def _line(row: AgentRow) -> str:
    parts = [
        f"{name} {p.speedup:.2f}x"
        + ("" if p.measured is None else f" (measured {np.exp(p.measured):.2f}x)")
        for name, p in row.played.items()
    ]
    return f"{row.program} ({row.nodes} nodes): {', '.join(parts)}"


def agents_table(rows: Sequence[AgentRow]) -> Table:
    """Means per agent over the graphs."""
    checked = [row for row in rows if all(p.measured is not None for p in row.played.values())]
    table = Table(title=f"{len(rows)} graphs; the best vectors of {len(checked)} measured as well")
    columns = (
        "agent", "mean reward", "geomean by the bank", "evaluations", "best found at",
        "bank, measured graphs", "measured",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column == "agent" else "right")
    for name in rows[0].played:
        all_of = [row.played[name] for row in rows]
        some = [row.played[name] for row in checked]
        table.add_row(
            name,
            f"{np.mean([p.reward for p in all_of]):.3f}",
            f"{geometric_mean([p.speedup for p in all_of]):.2f}x",
            f"{np.mean([p.evaluations for p in all_of]):.0f}",
            f"{np.mean([p.found_at for p in all_of]):.0f}",
            f"{geometric_mean([p.speedup for p in some]):.2f}x" if some else "",
            f"{geometric_mean([np.exp(p.measured or 0.0) for p in some]):.2f}x" if some else "",
        )
    return table
