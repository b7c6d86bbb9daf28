"""Trains the placement policy on the simulator, and uses it to search one graph.

Three stages, as in DOPPLER (arXiv 2505.23131): imitate the best placements a search finds, then PPO on
the simulator over many graphs, then PPO on the one graph at hand. Episodes have one step (GO, arXiv
2010.12438): all blocks are placed, one step time comes back. The probability ratio is per block and
clipped per block; the advantage is the step time relative to the batch's mean, in units of its spread.

Axis letters: B samples, K blocks, G groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from graphopt.learn.placement.moves import evolve_pool
from graphopt.placement.baselines import BASELINES, Placement, Problem
from graphopt.placement.search import Evaluator, Found, evolve
from graphopt.policy.placement import network
from graphopt.policy.placement.blocks import BlockGraph, block_graph
from graphopt.policy.placement.learned import PlacementPolicy
from graphopt.progress import Show


@dataclass(frozen=True)
class PlacementTraining:
    """Hyper-parameters.

    Attributes:
        blocks: blocks per graph.
        samples: placements per graph and update.
        learning_rate: of Adam.
        clip: PPO's, on the ratio of each block.
        epochs: gradient steps per batch.
        entropy: weight of the entropy bonus.
        imitation_steps: gradient steps of imitation per graph.
        rounds: PPO passes over all graphs.
        teacher_evaluations: of the genetic search that is imitated.
        seed: of everything random.
    """

    blocks: int = 96
    samples: int = 32
    learning_rate: float = 2e-3
    clip: float = 0.2
    epochs: int = 4
    entropy: float = 2e-3
    imitation_steps: int = 30
    rounds: int = 30
    teacher_evaluations: int = 600
    seed: int = 0

    @property
    def steps(self) -> int:
        """Steps of imitation and rounds of PPO."""
        return self.imitation_steps + self.rounds


class Trainer:
    """Holds weights and optimizer state, and applies the two kinds of update."""

    def __init__(self, params: network.Params, config: PlacementTraining) -> None:
        self.params = params
        self.config = config
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(1.0), optax.adam(config.learning_rate)
        )
        self._state = self._optimizer.init(params)
        self._imitate = jax.jit(self._step(_imitation_loss))
        self._reinforce = jax.jit(self._step(_ppo_loss(config.clip, config.entropy)))

    def imitate(self, graph: dict[str, Any], devices: NDArray[np.int32]) -> float:
        """One step towards placements int32 [B, K]; returns the loss per block."""
        return self._apply(self._imitate, graph, jnp.asarray(devices))

    def reinforce(
        self, graph: dict[str, Any], devices: NDArray[np.int32], seconds: NDArray[np.float64]
    ) -> float:
        """PPO on sampled placements int32 [B, K] with step times float64 [B]."""
        advantage = _advantage(seconds)
        drawn = jnp.asarray(devices)
        before = network.log_probabilities(self.params, graph, drawn)[0]
        loss = 0.0
        for _ in range(self.config.epochs):
            loss = self._apply(self._reinforce, graph, drawn, before, jnp.asarray(advantage))
        return loss

    def _apply(self, step: Callable[..., Any], *batch: Any) -> float:
        self.params, self._state, loss = step(self.params, self._state, *batch)
        return float(loss)

    def _step(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        def step(params: Any, state: Any, *batch: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(params, *batch)
            updates, state = self._optimizer.update(gradient, state)
            return optax.apply_updates(params, updates), state, value

        return step


def _imitation_loss(params: Any, graph: Any, devices: Any) -> Any:
    return -network.log_probabilities(params, graph, devices)[0].mean()


def _ppo_loss(clip: float, entropy: float) -> Callable[..., Any]:
    def loss(params: Any, graph: Any, devices: Any, before: Any, advantage: Any) -> Any:
        log, spread = network.log_probabilities(params, graph, devices)
        ratio = jnp.exp(log - before)
        gain = advantage[:, None]
        clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
        return -jnp.minimum(ratio * gain, clipped * gain).mean() - entropy * spread.mean()

    return loss


def _advantage(seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    """float32 [B]: minus the root of the step time (GO's reward), standardised over the batch."""
    reward = -np.sqrt(seconds / seconds.mean())
    centred = reward - reward.mean()
    advantage: NDArray[np.float64] = centred / max(float(centred.std()), 1e-6)
    return advantage.astype(np.float32)


def train(
    problems: Sequence[Problem],
    config: PlacementTraining,
    show: Show = lambda doing, done: None,
    keep: Callable[[PlacementPolicy], None] = lambda policy: None,
) -> PlacementPolicy:
    """Imitation, then PPO over all problems.

    Args:
        problems: graphs on machines.
        config: hyper-parameters.
        show: told what is done and how many of `config.steps` are finished.
        keep: given the policy after each round of PPO.
    """
    trainer = Trainer(network.init(config.seed), config)
    graphs = [block_graph(problem, config.blocks) for problem in problems]
    arrays = [network.arrays(graph) for graph in graphs]
    teachers = [_teach(p, g, config) for p, g in zip(problems, graphs, strict=True)]
    for step in range(config.imitation_steps):
        losses = [trainer.imitate(a, t) for a, t in zip(arrays, teachers, strict=True)]
        show(f"imitation: loss per block {np.mean(losses):.3f}", step + 1)
    judges = [Evaluator(problem) for problem in problems]
    for turn in range(config.rounds):
        ratios = []
        for index, problem in enumerate(problems):
            policy = PlacementPolicy(trainer.params)
            drawn = policy.propose(graphs[index], config.samples, seed=config.seed + turn)
            seconds = judges[index](graphs[index].placement(problem, drawn))
            trainer.reinforce(arrays[index], drawn, seconds)
            ratios.append(float(seconds.mean() / judges[index].seconds))
        done = config.imitation_steps + turn + 1
        show(f"PPO: mean sample / best seen {np.exp(np.mean(np.log(ratios))):.3f}", done)
        keep(PlacementPolicy(trainer.params))
    return PlacementPolicy(trainer.params)


def _teach(problem: Problem, graph: BlockGraph, config: PlacementTraining) -> NDArray[np.int32]:
    """int32 [1, K]: the best placement that a genetic search finds."""
    found = evolve(
        problem, config.teacher_evaluations, start=_starts(problem), blocks=graph.block,
        seed=config.seed,
    )  # fmt: skip
    return graph.of_placement(problem, found.placement).astype(np.int32)[None]


def _starts(problem: Problem) -> list[Placement]:
    return [baseline(problem) for baseline in BASELINES.values()]


@dataclass(frozen=True, eq=False)
class Tuned:
    """The policy on one graph, by itself.

    Attributes:
        best_s: float64 [rounds]; best step time of each round's proposals; inf if none fitted. The first
            round is before any update.
        updates: gradient steps from the first round to the last.
        proposals: int32 [B, K]; of all rounds.
        values: float64 [B]; their step times, those that do not fit made dearer.
    """

    best_s: NDArray[np.float64]
    updates: int
    proposals: NDArray[np.int32]
    values: NDArray[np.float64]


def fine_tune(
    problem: Problem,
    policy: PlacementPolicy,
    rounds: int,
    *,
    graph: BlockGraph | None = None,
    judge: Evaluator | None = None,
    seed: int = 0,
    config: PlacementTraining | None = None,
) -> Tuned:
    """Proposals and PPO on them, in turn; ends with proposals.

    Args:
        problem: the graph and the machine.
        policy: a trained policy; it is not changed.
        rounds: batches of proposals, at least 1; with 1 the policy is only asked.
        graph: the problem's blocks, if they are known.
        judge: counts evaluations; None: one of its own.
        seed: of everything random.
        config: hyper-parameters; None: the defaults.
    """
    config = config or PlacementTraining()
    graph = graph or block_graph(problem, config.blocks)
    judge = judge or Evaluator(problem)
    arrays, trainer = network.arrays(graph), Trainer(policy.params, config)
    drawn, seconds, best = [], [], []
    for turn in range(rounds):
        tuned = PlacementPolicy(trainer.params)
        drawn.append(tuned.propose(graph, config.samples, seed=seed * 1000 + turn))
        seconds.append(judge(graph.placement(problem, drawn[-1])))
        best.append(judge.latest)
        if turn + 1 < rounds:
            trainer.reinforce(arrays, drawn[-1], seconds[-1])
    return Tuned(
        np.array(best), (rounds - 1) * config.epochs, np.concatenate(drawn), np.concatenate(seconds)
    )


def search(
    problem: Problem,
    policy: PlacementPolicy,
    evaluations: int,
    *,
    start: Sequence[Placement] | None = None,
    seed: int = 0,
    config: PlacementTraining | None = None,
) -> Found:
    """The policy on one graph, at a fixed number of evaluations: propose, fine-tune, evolve.

    A fifth of the evaluations goes to proposals and PPO on them; the rest to a genetic search whose first
    population is the classical placements and the best proposals (`graphopt.learn.placement.moves`).

    Args:
        problem: the graph and the machine.
        policy: a trained policy; it is not changed.
        evaluations: placements that may be scored, the classical ones included.
        start: classical placements; None: all of `BASELINES`.
        seed: of everything random.
        config: hyper-parameters; None: the defaults.
    """
    config = config or PlacementTraining()
    rng = np.random.default_rng(seed)
    judge = Evaluator(problem)
    first = np.stack([problem.masks.repair(p) for p in (start or _starts(problem))])
    value_first = judge(first)
    graph = block_graph(problem, config.blocks)
    rounds = max(1, evaluations // 5 // config.samples)
    tuned = fine_tune(problem, policy, rounds, graph=graph, judge=judge, seed=seed, config=config)
    pool = np.stack([graph.of_placement(problem, p) for p in first]).astype(np.int32)
    evolve_pool(
        problem, graph, judge, evaluations, np.concatenate([pool, tuned.proposals]),
        np.concatenate([value_first, tuned.values]), rng,
    )  # fmt: skip
    return judge.found()
