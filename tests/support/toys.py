"""Scorers and settings whose best decisions are known."""

from __future__ import annotations

import functools

import numpy as np

from graphopt.hlo import DecisionBatch, Graph
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import (
    ImitationConfig,
    PPOConfig,
    RolloutConfig,
    StageConfig,
    TrainConfig,
)
from graphopt.measure import Scores
from graphopt.policy.network.config import ModelConfig
from graphopt.policy.network.features import extract
from support.captures import captured

MODEL = ModelConfig(
    hidden=16, layers=1, heads=2, segment=32, key=8, decision=8, op_width=8, dtype_width=2
)
"""Small enough to compile fast."""


class FlipScorer:
    """Every free `fuse` bit that differs from XLA's changes the log time by an amount of its own.

    The bits of `good` opcodes gain 1 / (their number), all others lose as much: the best decisions flip
    exactly the former, and their log speed-up is 1.
    """

    name = "flip"
    deterministic = True

    def __init__(self, graph: Graph, good: frozenset[str]) -> None:
        self.graph = graph
        self.calls = 0
        free = graph.masks.fuse.all(axis=1)
        wanted = free & np.array([op.name in good for op in graph.ops])
        self.best = graph.default.fuse ^ wanted
        self.effect = np.where(wanted, 1.0, -1.0) * free / max(int(wanted.sum()), 1)

    @property
    def default_s(self) -> float:
        return 1e-3

    def score(self, batch: DecisionBatch) -> Scores:
        self.calls += len(batch)
        flipped = batch.fields["fuse"] != self.graph.default.fuse
        return Scores(self.default_s * np.exp(-(flipped @ self.effect)), (None,) * len(batch))


GOOD = frozenset({"multiply", "add"})


@functools.cache
def flip_problem(name: str) -> Problem:
    """A program's graph with a `FlipScorer` under the name flip; policies start from XLA's decisions."""
    graph = captured(name).graph
    problem = Problem(name, "toy", graph, scorers={"flip": FlipScorer(graph, GOOD)})
    problem.features = extract(graph, start=graph.default)
    return problem


def config(**changes: object) -> TrainConfig:
    """Settings of a run on `flip` problems with `MODEL`."""
    fields = {
        "model": MODEL,
        "rollout": RolloutConfig(graphs=2, samples=12),
        # With less, what is learnt last may stay wrong: nothing is drawn any more that would show it.
        "ppo": PPOConfig(epochs=2, entropy=0.03),
        "imitation": ImitationConfig(enabled=False),
        "stages": (StageConfig("flip", "flip", 150, 5e-3, imitation=0.0),),
        "validate_every": 10,
        "save_every": 5,
        "seed": 1,
    }
    return TrainConfig(**{**fields, **changes})
