"""``graphopt bench env`` and ``graphopt bench agents``: speed of the environment, and agents in it.

* ``env``: steps per second and batched vectors per second, per reward source.
* ``agents``: speed-up by the reward source that agents reach with equal numbers of scored vectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from graphopt.env import FusionPlacementEnv, encode
from graphopt.env.sources import GraphSources
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.learn.search import ENGINES, Budget
from graphopt.measure.scoring import Scores
from graphopt.policy.heuristic import heuristic

SPEED_PROGRAMS: Final = ("layernorm", "adam_step", "transformer_block", "cartpole_rollout")
"""Graphs of 24 to about 420 nodes."""

SPEED_SOURCES: Final = ("analytic", "bank")
WARM_VECTORS: Final = 2048
BATCH: Final = 256
STEPS: Final = 64
CHANGE: Final = 0.05
"""Random vectors redraw this share of XLA's decisions."""

AGENT_PROGRAMS: Final = (
    "layernorm", "adam_step", "heat_stencil", "cartpole_rollout", "lstm", "hodgkin_huxley",
    "transformer_block",
)  # fmt: skip
"""Played where this installation has no corpus; else its train split is."""

EVALUATIONS: Final = 300
MAX_NODES: Final = 1000


def _draw(graph: Graph, rng: np.random.Generator, count: int) -> list[Decisions]:
    return [graph.masks.sample(rng, graph.default, CHANGE) for _ in range(count)]


def _rate(run: Callable[[], tuple[int, float]], budget_s: float) -> float:
    """Median events per second of repeated runs, each of which returns (events, seconds)."""
    rates: list[float] = []
    end = time.perf_counter() + budget_s
    while len(rates) < 3 or time.perf_counter() < end:
        count, seconds = run()
        rates.append(count / seconds)
    return float(median(rates))


def bench_env(console: Console, budget_s: float) -> None:
    """Prints steps and vectors per second of one process.

    The bank is warm: it has seen the vectors, which it names anew every time. The analytic model, which
    remembers whole vectors, gets new ones.
    """
    table = Table(title="environment: decision vectors scored per second, one process")
    for column in ("program", "nodes", "source", "steps/s", "without details", "batched/s"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for name in SPEED_PROGRAMS:
        for source in SPEED_SOURCES:
            table.add_row(*_speed_row(name, source, budget_s / 4))
    console.print(table)


def _speed_row(name: str, source: str, budget_s: float) -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    rates = []
    for details in (True, False):
        env = FusionPlacementEnv(graphs=name, reward=source, details=details)
        env.reset(seed=0)
        warm = _draw(env.graph, rng, WARM_VECTORS) if source == "bank" else []
        if warm:
            env.score_batch(DecisionBatch.stack(warm))
        rates.append(_rate(lambda e=env, w=warm: _some_steps(e, w, rng), budget_s))  # type: ignore[misc]
    rates.append(_rate(lambda: _one_batch(env, warm, rng), budget_s))
    env.close()
    return name, str(len(env.graph)), source, *(f"{rate:,.0f}" for rate in rates)


def _some_steps(
    env: FusionPlacementEnv, warm: list[Decisions], rng: np.random.Generator
) -> tuple[int, float]:
    """Episodes of one step; the drawing of actions does not count."""
    picked = _pick(env.graph, warm, rng, STEPS)
    actions = [encode(decisions) for decisions in picked]
    start = time.perf_counter()
    for action in actions:
        env.reset(options={"graph": 0})
        env.step(action)
    return STEPS, time.perf_counter() - start


def _one_batch(
    env: FusionPlacementEnv, warm: list[Decisions], rng: np.random.Generator
) -> tuple[int, float]:
    batch = DecisionBatch.stack(_pick(env.graph, warm, rng, BATCH))
    start = time.perf_counter()
    env.score_batch(batch)
    return BATCH, time.perf_counter() - start


def _pick(
    graph: Graph, warm: list[Decisions], rng: np.random.Generator, count: int
) -> list[Decisions]:
    if not warm:
        return _draw(graph, rng, count)
    return [warm[i] for i in rng.choice(len(warm), count, replace=False)]


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
class AgentRow:
    """Speed-ups by the reward source that agents reached on one graph.

    Attributes:
        program: name of the graph.
        nodes: its size.
        speedups: agent -> default seconds / best seconds; 1 where nothing was better.
    """

    program: str
    nodes: int
    speedups: dict[str, float]


def random_agent(env: FusionPlacementEnv, evaluations: int, seed: int) -> float:
    """Best speed-up of so many legal actions: half near XLA's decisions, half anything."""
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    best = 1.0
    for index in range(evaluations):
        env.reset(options={"graph": 0})
        near = env.graph.masks.sample(rng, env.graph.default, CHANGE)
        action = near if index % 2 else env.action_space.sample()
        best = max(best, env.step(action)[4]["speedup"])
    return best


def heuristic_agent(env: FusionPlacementEnv) -> float:
    """Speed-up of the hand-written heuristic."""
    env.reset(options={"graph": 0})
    decisions = heuristic(env.graph)
    if decisions is None:
        return 1.0
    return float(env.step(decisions)[4]["speedup"])


def run_agents(
    graphs: GraphSources,
    source: str = "bank",
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    max_nodes: int | None = None,
) -> list[AgentRow]:
    """Every agent on every graph of at most `max_nodes`, each through an environment of its own."""
    rows = []
    for item in FusionPlacementEnv(graphs=graphs, max_nodes=max_nodes).items:
        env = FusionPlacementEnv(graphs=[item], reward=source, details=False)
        speedups = {
            "random": random_agent(env, evaluations, seed),
            "heuristic": heuristic_agent(env),
        }
        for name, engine in ENGINES.items():
            env.reset(options={"graph": 0})
            found = engine(EnvironmentScorer(env), Budget(evaluations), seed)
            speedups[name] = found.speedup
        rows.append(AgentRow(item.name, len(item.graph), speedups))
        env.close()
    return rows


def bench_agents(console: Console, budget_s: float) -> None:
    """Prints what agents reach at equal numbers of scored vectors."""
    import graphopt.corpus

    split = "train" if hasattr(graphopt.corpus, "load_corpus") else AGENT_PROGRAMS
    rows = run_agents(split, max_nodes=MAX_NODES)
    agents = list(rows[0].speedups)
    table = Table(title=f"speed-up by the kernel bank after {EVALUATIONS} scored vectors")
    for column in ("program", "nodes", *agents):
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        table.add_row(row.program, str(row.nodes), *(f"{row.speedups[a]:.2f}x" for a in agents))
    means: NDArray[np.float64] = np.array(
        [geometric_mean([row.speedups[a] for row in rows]) for a in agents]
    )
    table.add_row("geometric mean", "", *(f"{mean:.2f}x" for mean in means))
    console.print(table)
