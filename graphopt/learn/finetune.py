"""Adapting a trained policy to one graph: a few optimizer steps against a scorer, within seconds."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from graphopt.errors import ConfigError
from graphopt.hlo import Decisions
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import PPOConfig, RolloutConfig, StageConfig, TrainConfig
from graphopt.learn.training.elites import Elite, default_elite
from graphopt.learn.training.rollout import collect
from graphopt.learn.training.state import TrainState
from graphopt.learn.training.train import learn, remember
from graphopt.learn.training.update import Learner, make_optimizer
from graphopt.measure import Scorer
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import create, flatten, unflatten

MAX_STEPS: Final = 50
_KIND: Final = "finetune"
_SETTINGS: Final = TrainConfig(
    rollout=RolloutConfig(graphs=1, samples=16),
    ppo=PPOConfig(epochs=3, entropy=0.005),
    stages=(StageConfig("finetune", _KIND, MAX_STEPS, 1e-3, imitation=0.1),),
)


@dataclass(frozen=True)
class Finetuned:
    """What fine-tuning found.

    Attributes:
        decisions: the best decisions scored; XLA's own where nothing was better.
        speedup: default time / time of the best, by the scorer; at least 1.
        steps: optimizer steps taken.
        evaluations: decision vectors scored, repetitions included.
        history: (evaluations so far, best speed-up) after every step.
        network: the adapted network.
    """

    decisions: Decisions
    speedup: float
    steps: int
    evaluations: int
    history: tuple[tuple[int, float], ...]
    network: NumpyPolicy


def finetune(
    network: NumpyPolicy,
    scorer: Scorer,
    *,
    budget_s: float = 60.0,
    max_steps: int = MAX_STEPS,
    seed: int = 0,
) -> Finetuned:
    """Adapts a copy of `network` to the scorer's graph.

    Args:
        network: of a checkpoint: ``load(path).policy().network``.
        scorer: judges decisions of one graph.
        budget_s: no step is begun after so many seconds. The first includes compiling the gradient, some
            seconds; decisions are drawn and scored before it.
        max_steps: most optimizer steps.
        seed: of the sampling.

    Raises:
        ConfigError: the budget or the number of steps is not positive.
    """
    if max_steps < 1 or not budget_s > 0:
        raise ConfigError(
            what=f"{max_steps} steps within {budget_s} s", where="finetune", fix="Allow one step."
        )
    start = time.perf_counter()
    config = replace(_SETTINGS, model=network.config)
    stage = replace(config.stages[0], steps=max_steps)
    problem = Problem(scorer.graph.name, "", scorer.graph, scorers={_KIND: scorer})
    state = TrainState(_learner(network, config), np.random.default_rng(seed))
    elites: dict[str, Elite] = state.elites
    history: list[tuple[int, float]] = []
    for _ in range(max_steps):
        adapted = NumpyPolicy(config.model, flatten(state.learner.parameters))
        rollout = collect(adapted, problem, _KIND, state.rng, config.rollout)
        remember(elites, rollout, _KIND)
        best = elites.get(problem.name, default_elite(problem.graph))
        evaluations = (len(history) + 1) * config.rollout.samples
        history.append((evaluations, math.exp(best.log_speedup)))
        if time.perf_counter() - start > budget_s:
            break
        learn(config, state, stage, [rollout])
        state.stage_step += 1
    return Finetuned(
        decisions=best.decisions,
        speedup=math.exp(best.log_speedup),
        steps=state.stage_step,
        evaluations=evaluations,
        history=tuple(history),
        network=NumpyPolicy(config.model, flatten(state.learner.parameters)),
    )


def _learner(network: NumpyPolicy, config: TrainConfig) -> Learner:
    _, like = create(network.config, 0)
    parameters = unflatten(like, dict(network.parameters))
    optimizer = make_optimizer(config.max_grad_norm)
    return Learner(network.config, parameters, optimizer.init(parameters), parameters)
