"""Which graphs a step learns from, and which decisions it imitates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import StageConfig, TrainConfig
from graphopt.learn.training.elites import (
    Elite,
    start_elite,
)
from graphopt.learn.training.rollout import Rollout


def largest_graph(problems: Sequence[Problem], stage: StageConfig, step: int) -> int:
    """Nodes of the largest graph allowed at a step: grows geometrically to all graphs by mid-stage."""
    largest = max(len(problem.graph) for problem in problems)
    if not stage.start_nodes:
        return largest
    start = min(max(stage.start_nodes, min(len(p.graph) for p in problems)), largest)
    progress = min(2.0 * step / max(stage.steps, 1), 1.0)
    return int(start * (largest / start) ** progress + 0.5)


def choose_problems(
    problems: Sequence[Problem], limit: int, count: int, rng: np.random.Generator
) -> list[Problem]:
    """`count` different problems of at most `limit` nodes (fewer if there are not so many)."""
    allowed = [problem for problem in problems if len(problem.graph) <= limit]
    picked = rng.choice(len(allowed), size=min(count, len(allowed)), replace=False)
    return [allowed[index] for index in picked]


def worth_imitating(elites: dict[str, Elite], rollout: Rollout, config: TrainConfig) -> Elite:
    """The best known decisions if they gain clearly over the start, else the start."""
    known = elites.get(rollout.problem.name)
    if known is None or known.log_speedup < rollout.base + config.imitation.min_gain:
        return start_elite(rollout.problem, rollout.base)
    return known
