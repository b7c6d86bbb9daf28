"""What an environment prepares once per graph: codec, features, scorer; and what it says about a step."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from graphopt.env.actions import ActionCodec
from graphopt.env.observation import GraphFeatures
from graphopt.env.rewards import RewardSource
from graphopt.env.sources import GraphItem
from graphopt.hlo import Decisions
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.plan.interactions import SETTLED
from graphopt.measure.plans import Outcome
from graphopt.measure.scoring import Scorer


class GraphContext:
    """One graph of an environment; its parts are made when they are first needed.

    Attributes:
        item: the graph with its name and program.
        sizes: F entries; number of values of each decision field in the action space.
        source: where times come from.
    """

    def __init__(self, item: GraphItem, sizes: tuple[int, ...], source: RewardSource) -> None:
        self.item = item
        self.sizes = sizes
        self.source = source

    @cached_property
    def codec(self) -> ActionCodec:
        """Translates actions."""
        return ActionCodec.of(self.item.graph, self.sizes)

    @cached_property
    def features(self) -> GraphFeatures:
        """Observations, as far as they never change."""
        return GraphFeatures.of(self.item.graph, self.sizes)

    @cached_property
    def scorer(self) -> Scorer:
        """Scores decision vectors.

        Raises:
            ConfigError: the source needs a program and there is none, or is not installed.
        """
        return self.source.scorer(self.item.graph, self.item.program)

    def close(self) -> None:
        """Ends what the scorer holds; it is made again when it is needed again."""
        scorer = self.__dict__.pop("scorer", None)
        end = getattr(scorer, "close", None)
        if end is not None:
            end()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the scorer, which may hold processes and files."""
        return {name: value for name, value in self.__dict__.items() if name != "scorer"}


def info_of(
    context: GraphContext,
    decisions: Decisions,
    seconds: float,
    score: float,
    failure: str,
    replaced: int,
    outcome: Outcome | None,
) -> dict[str, Any]:
    """What ``info`` says of a graph and of decisions; always the same keys, as libraries keep them in arrays.

    Args:
        context: of the graph at hand.
        decisions: what was decided; XLA's own at a reset.
        seconds: their time; NaN if there is none.
        score: on the reward scale.
        failure: why there is no time.
        replaced: values that were forbidden.
        outcome: the plan of the decisions, if it was asked for.
    """
    failed = bool(np.isnan(seconds))
    graph, default_s = context.item.graph, float(context.scorer.default_s)
    changed = [getattr(decisions, f) != getattr(graph.default, f) for f in FIELDS]
    info: dict[str, Any] = {
        "graph": context.item.name,
        "nodes": len(graph),
        "default_s": default_s,
        "seconds": float("inf") if failed else float(seconds),
        "speedup": 0.0 if failed else default_s / seconds,
        "score": score,
        "changed": sum(int(field.sum()) for field in changed),
        "replaced": replaced,
        "failure": failure,
    }
    if outcome is not None:
        info["clusters"] = outcome.clusters
        info["regions"] = outcome.regions
        info["overrides"] = {rule: outcome.overrides.get(rule, 0) for rule in SETTLED}
    return info
