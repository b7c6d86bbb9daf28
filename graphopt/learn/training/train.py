"""The training loop: stages of sampling, scoring and learning, with validation, saving and resuming."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Final

import numpy as np

from graphopt.errors import ConfigError, MeasureError
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import StageConfig, TrainConfig
from graphopt.learn.training.batch import make_batch
from graphopt.learn.training.choosing import choose_problems, largest_graph, worth_imitating
from graphopt.learn.training.elites import (
    RECORDED,
    Elite,
    default_elite,
    improve,
    judged_by,
    make_label,
    stored_winner,
)
from graphopt.learn.training.evaluation import choose_margin, evaluate
from graphopt.learn.training.gate import choose_gate, gate_metrics, try_candidates
from graphopt.learn.training.metrics import Recorder
from graphopt.learn.training.replay import Records, load_records, replay_batch
from graphopt.learn.training.rollout import Rollout, collect, rollout_metrics
from graphopt.learn.training.state import TrainState, save_state
from graphopt.learn.training.update import learning_rate, objective_weights, update_epoch
from graphopt.policy.network.checkpoint import PolicySpec, save
from graphopt.policy.network.gated import Gate
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import flatten

POLICY: Final = "policy"
"""Directory of the policy with the best validation result so far, inside a run's directory."""

Metrics = dict[str, float]
Report = Callable[[str, int, int, Metrics], None]
"""(stage or phase, steps done, steps in all, metrics) -> nothing; called after every step."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a training run works with.

    Attributes:
        config: its settings.
        problems: graphs to learn from, smallest first.
        validation: graphs to judge by; never learned from.
        out: directory of the run.
        report: told of every step.
    """

    config: TrainConfig
    problems: Sequence[Problem]
    validation: Sequence[Problem]
    out: Path
    report: Report
    _records: dict[str, Records | None] = field(default_factory=dict)

    def records(self, problem: Problem) -> Records | None:
        """Measured vectors of a training graph, read once; None where there are too few."""
        if problem.name not in self._records:
            self._records[problem.name] = load_records(problem, self.config.other_machines)
        return self._records[problem.name]

    def __post_init__(self) -> None:
        """Checks that there is something to learn from and to judge by, and that nothing is both.

        Raises:
            ConfigError: a set is empty, or a graph, or one of equal structure, is in both.
        """
        if not self.problems or not self.validation:
            raise ConfigError(
                what="training needs at least one graph to learn from and one to judge by",
                where="graphs",
                fix="name more programs",
            )
        known = {problem.graph.fingerprint: problem.name for problem in self.problems}
        for problem in self.validation:
            if problem.graph.fingerprint in known:
                raise ConfigError(
                    what=f"{problem.name} equals the training graph {known[problem.graph.fingerprint]}",
                    where="validation graphs",
                    fix="remove it from one of the two",
                )


def train(run: Run, state: TrainState) -> TrainState:
    """Runs all stages from `state` on; an interruption saves the state before it is passed on.

    Returns:
        The final state; the best policy lies in ``out/policy``, the state in ``out/state``.
    """
    run.out.mkdir(parents=True, exist_ok=True)
    ends = run.config.budget_s or float("inf")
    with Recorder(run.out, state.step) as recorder:
        try:
            while state.stage < len(run.config.stages) and state.seconds < ends:
                run_stage(run, state, recorder, ends)
        finally:
            save_state(run.out, state, run.config)
    if state.seconds >= ends or not (run.out / POLICY).exists():
        validate(run, state)
    return state


def run_stage(run: Run, state: TrainState, recorder: Recorder, ends: float) -> None:
    """Runs the stage in progress to its end, or until `ends` seconds of training."""
    config = run.config
    stage = config.stages[state.stage]
    skipped = stage.policy == 0.0 and not config.imitation.enabled
    if state.stage_step == 0 and not skipped:
        begin = time.perf_counter()
        with state.whole_step():
            make_labels(run, state, stage)
            if not run.config.validation_scorer:
                state.best = -1e9  # results by another scorer do not compare
        state.seconds += time.perf_counter() - begin
    while not skipped and state.stage_step < stage.steps and state.seconds < ends:
        begin = time.perf_counter()
        with state.whole_step():
            metrics = train_step(run, state, stage)
            state.step += 1
            state.stage_step += 1
        if state.stage_step % config.validate_every == 0 or state.stage_step == stage.steps:
            metrics |= validate(run, state)
        state.seconds += time.perf_counter() - begin
        metrics |= {
            "train/step": state.step,
            "train/stage": state.stage,
            "train/seconds": state.seconds,
        }
        recorder.write(metrics)
        run.report(stage.name, state.stage_step, stage.steps, metrics)
        if state.step % config.save_every == 0:
            save_state(run.out, state, config)
    if skipped or state.stage_step >= stage.steps:
        state.stage, state.stage_step = state.stage + 1, 0


def make_labels(run: Run, state: TrainState, stage: StageConfig) -> None:
    """Searches for the best decisions of every training graph, by the stage's scorer.

    Graphs for which an earlier stage with the same scorer has searched are left out.
    """
    imitation = run.config.imitation
    if stage.scorer == RECORDED:
        for problem in run.problems:
            records = run.records(problem)
            if records is not None:
                state.elites[problem.name] = records.elite(problem)
        return
    if not imitation.enabled or not stage.search:
        return
    for index, problem in enumerate(run.problems):
        known = state.elites.get(problem.name)
        if known is None or known.judge != stage.scorer:
            seed = run.config.seed + 7919 * index
            label = make_label(problem, stage.scorer, imitation.evaluations, seed, imitation.rounds)
            for other in (known, stored_winner(problem)):
                if other is not None:
                    candidates = [other.decisions]
                    label = improve(label, problem, stage.scorer, candidates, other.origin)
            state.elites[problem.name] = label
        run.report(f"{stage.name} labels", index + 1, len(run.problems), {})


def train_step(run: Run, state: TrainState, stage: StageConfig) -> Metrics:
    """Samples, scores and learns once; changes `state`."""
    config = run.config
    if stage.scorer == RECORDED:
        return replay_step(run, state, stage)
    limit = largest_graph(run.problems, stage, state.stage_step)
    chosen = choose_problems(run.problems, limit, config.rollout.graphs, state.rng)
    network = NumpyPolicy(config.model, flatten(state.learner.parameters))
    begin = time.perf_counter()
    rollouts = collect_all(network, chosen, stage, state, config)
    if not rollouts:
        return {}
    chosen = [rollout.problem for rollout in rollouts]
    metrics = rollout_metrics(rollouts)
    metrics["rollout/seconds"] = time.perf_counter() - begin
    for problem in chosen:
        known_best = state.elites.get(problem.name)
        state.elites[problem.name] = judged_by(known_best, problem, stage.scorer)
    before = dict(state.elites)
    improved = [
        r.problem
        for r in rollouts
        if not outranked(state.elites, r.problem, stage.scorer)
        and remember(state.elites, r, stage.scorer)
    ]
    if config.confirm:
        improved = [p for p in improved if correct(state.elites, before, p, stage.scorer)]
    metrics["elite/improved"] = len(improved)
    known = [e.log_speedup for e in state.elites.values() if e.judge == stage.scorer]
    metrics["elite/log_speedup"] = float(np.mean(known)) if known else 0.0
    metrics["train/largest_graph"] = limit
    recorded = [p for p in chosen if run.records(p) is not None]
    metrics |= learn(config, state, stage, rollouts, recorded)
    if recorded and stage.scorer == "bank":  # keeps the gain head on what was measured
        replay(run, state, stage, recorded)
    return metrics


def collect_all(
    network: NumpyPolicy,
    problems: Sequence[Problem],
    stage: StageConfig,
    state: TrainState,
    config: TrainConfig,
) -> list[Rollout]:
    """Rollouts of those problems that can be scored."""
    rollouts = []
    for problem in problems:
        with contextlib.suppress(MeasureError):
            rollouts.append(collect(network, problem, stage.scorer, state.rng, config.rollout))
    return rollouts


def outranked(elites: dict[str, Elite], problem: Problem, kind: str) -> bool:
    """True where the best known decisions were measured whole and a prediction cannot replace them."""
    known = elites.get(problem.name)
    return known is not None and known.judge == RECORDED and kind != "measured"


def replay_step(run: Run, state: TrainState, stage: StageConfig) -> Metrics:
    """Learns once from recorded vectors of some graphs.

    Raises:
        ConfigError: the store knows no vectors of any training graph.
    """
    usable = [problem for problem in run.problems if run.records(problem) is not None]
    if not usable:
        raise ConfigError(
            what="the store holds no measured decisions of the training graphs",
            where=f"stage {stage.name}",
            fix="Run graphopt fill with the same store first.",
        )
    limit = largest_graph(usable, stage, state.stage_step)
    chosen = choose_problems(usable, limit, run.config.rollout.graphs, state.rng)
    known = [e.log_speedup for e in state.elites.values() if e.judge == RECORDED]
    return {
        "train/largest_graph": limit,
        "elite/log_speedup": float(np.mean(known)) if known else 0.0,
        **replay(run, state, stage, chosen),
    }


def replay(run: Run, state: TrainState, stage: StageConfig, problems: Sequence[Problem]) -> Metrics:
    """One optimizer step on recorded vectors: imitation of the best, gains of all."""
    config = run.config
    batches = [
        replay_batch(problem, records, state.rng, config)
        for problem in problems
        if (records := run.records(problem)) is not None
    ]
    weights = objective_weights(stage, config.ppo, config.imitation.enabled)
    weights = weights._replace(policy=np.float32(0.0), entropy=np.float32(0.0))
    rate = learning_rate(stage, state.stage_step)
    state.learner, metrics, _ = update_epoch(
        state.learner,
        batches,
        weights,
        rate,
        config.max_grad_norm,
        float("inf"),
        weight_decay=config.weight_decay,
        averaging=config.averaging,
    )
    return metrics | {"train/learning_rate": rate, "train/epochs": 1}


def learn(
    config: TrainConfig,
    state: TrainState,
    stage: StageConfig,
    rollouts: Sequence[Rollout],
    recorded: Sequence[Problem] = (),
) -> Metrics:
    """Passes over the rollouts until the limit or the divergence guard ends them.

    For graphs in `recorded` the gain head learns from measurements only, not from a bank's predictions.
    """
    untrusted = {problem.name for problem in recorded} if stage.scorer == "bank" else set()
    weights = objective_weights(stage, config.ppo, config.imitation.enabled)
    rate = learning_rate(stage, state.stage_step)
    batches = [
        make_batch(
            rollout,
            worth_imitating(state.elites, rollout, config),
            config,
            rollout.problem.name not in untrusted,
        )
        for rollout in rollouts
    ]
    metrics: Metrics = {}
    epochs = config.ppo.epochs if stage.policy > 0.0 else 1
    limit = config.ppo.max_kl if stage.policy > 0.0 else float("inf")
    done = 0
    for _ in range(epochs):
        state.learner, latest, moved = update_epoch(
            state.learner,
            batches,
            weights,
            rate,
            config.max_grad_norm,
            limit,
            weight_decay=config.weight_decay,
            averaging=config.averaging,
        )
        metrics |= latest
        if not moved:
            break
        done += 1
    return metrics | {"train/learning_rate": rate, "train/epochs": done}


def remember(elites: dict[str, Elite], rollout: Rollout, kind: str) -> bool:
    """Keeps the rollout's best vector if it beats the best known; True if it does."""
    best = int(np.argmax(np.where(rollout.failed, -np.inf, rollout.rewards)))
    gain = float(rollout.rewards[best])
    name = rollout.problem.name
    known = elites.get(name)
    if rollout.failed[best] or gain <= (known.log_speedup if known else max(rollout.base, 0.0)):
        return False
    batch = rollout.samples.decisions(rollout.problem.graph)
    elites[name] = Elite(batch[best].copy(), gain, "policy", kind)
    return True


def correct(
    elites: dict[str, Elite], before: dict[str, Elite], problem: Problem, kind: str
) -> bool:
    """Replaces the predicted gain of new best decisions by a measured one, where the scorer can.

    Returns:
        True if they are still the best; if not, the ones of `before` are put back.
    """
    found = elites[problem.name]
    gain = problem.confirm(kind, found.decisions)
    if gain is None:
        return True
    old = before.get(problem.name, default_elite(problem.graph))
    elites[problem.name] = changed(found, log_speedup=gain) if gain > old.log_speedup else old
    return gain > old.log_speedup


def validate(run: Run, state: TrainState) -> Metrics:
    """Judges the policy on the validation graphs and keeps it on disk if it is the best so far."""
    parameters = flatten(state.learner.average)
    network = NumpyPolicy(run.config.model, parameters)
    last = run.config.stages[min(state.stage, len(run.config.stages) - 1)]
    kind = run.config.validation_scorer or last.scorer
    kind = "measured" if kind == RECORDED else kind
    result = evaluate(network, run.validation, kind)
    margin = choose_margin(result)
    trials = try_candidates(network, run.validation, kind)
    gate = choose_gate(trials)
    metrics = result.metrics(margin) | gate_metrics(trials, gate)
    if metrics["validation/worth"] >= state.best or not (run.out / POLICY).exists():
        state.best = metrics["validation/worth"]
        spec = policy_spec(run, state, margin, metrics, gate)
        save(run.out / POLICY, spec, parameters)
    return metrics


def policy_spec(
    run: Run, state: TrainState, margin: float, metrics: Metrics, gate: Gate
) -> PolicySpec:
    """What the policy's checkpoint says about itself."""
    return PolicySpec(
        model=run.config.model,
        min_gain=margin,
        steps=state.step,
        trained_on=tuple(sorted({p.graph.fingerprint for p in run.problems})),
        metrics={name: float(value) for name, value in metrics.items()},
        gate=gate,
    )
