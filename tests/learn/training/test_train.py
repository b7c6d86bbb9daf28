"""The training loop: a toy with a known best, resuming bit for bit, interruption, curriculum, metrics."""

from __future__ import annotations

import re
from dataclasses import replace

import jax
import matplotlib.image
import numpy as np
import pytest
from support.captures import captured
from support.toys import GOOD, MODEL, FlipScorer, config, flip_problem

from graphopt.errors import ConfigError
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import ImitationConfig, StageConfig
from graphopt.learn.training.choosing import choose_problems, largest_graph
from graphopt.learn.training.evaluation import Evaluation, choose_margin, evaluate
from graphopt.learn.training.metrics import EVENTS, METRICS, Recorder, page, read_rows
from graphopt.learn.training.plots import PANELS, plot
from graphopt.learn.training.state import fresh_state, load_state
from graphopt.learn.training.train import POLICY, Run, train
from graphopt.policy import resolve
from graphopt.policy.network.checkpoint import load
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import flatten

NAMES = ("layernorm", "heat_stencil", "fft_filter")


def run_of(settings, out, report=lambda phase, done, total, metrics: None):
    problems = [flip_problem(name) for name in NAMES]
    return Run(settings, problems[:2], problems[2:], out, report)


def parameters(state):
    return flatten(state.learner.parameters)


def same(one, two):
    return all(np.array_equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """PPO alone, no labels, on two graphs whose best log speed-up is 1."""
    out = tmp_path_factory.mktemp("runs") / "flip"
    settings = config()
    return out, train(run_of(settings, out), fresh_state(settings)), settings


def test_ppo_finds_the_known_best(trained):
    out, state, _ = trained
    rows = read_rows(out)
    assert rows[0]["rollout/greedy"] == 0.0  # it starts as XLA's default here
    assert rows[-1]["rollout/greedy"] > 0.9
    assert state.step == len(rows)


def test_the_rule_transfers_to_graphs_never_trained_on(trained):
    _, state, settings = trained
    network = NumpyPolicy(settings.model, parameters(state))
    result = evaluate(
        network, [flip_problem(n) for n in ("adam_step", "transformer_block")], "flip"
    )
    assert (result.log_speedup > 0.3).all()


def test_the_run_leaves_a_policy_and_its_history(trained):
    out, _, _ = trained
    checkpoint = load(out / POLICY)
    assert checkpoint.spec.model == MODEL
    assert set(checkpoint.spec.trained_on) == {flip_problem(n).graph.fingerprint for n in NAMES[:2]}
    assert resolve(out / POLICY).built_in
    rows = read_rows(out)
    assert [row["train/step"] for row in rows] == list(range(1, len(rows) + 1))
    assert any("validation/p50" in row for row in rows)
    assert any((out / EVENTS).iterdir())
    curves = plot(out)
    assert curves is not None
    image = matplotlib.image.imread(curves)
    # Lines are drawn: more than a frame with text, which has hardly any colour.
    coloured = np.ptp(image[..., :3], axis=-1) > 0.2
    assert coloured.sum() > 500


def test_resuming_gives_the_same_result_bit_for_bit(tmp_path):
    stages = (
        StageConfig("imitate", "flip", 3, 1e-2, policy=0.0, imitation=1.0),
        StageConfig("flip", "flip", 5, 1e-2),
    )
    settings = config(
        imitation=ImitationConfig(evaluations=30), stages=stages, validate_every=2, averaging=0.9
    )
    whole = train(run_of(settings, tmp_path / "whole"), fresh_state(settings))

    class Stop(BaseException):
        """Like a key press, in the middle of everything."""

    steps = 0

    def stop_after(count):
        def report(phase, done, total, metrics):
            nonlocal steps
            steps += bool(metrics)
            if steps == count and metrics:
                raise Stop

        return report

    out = tmp_path / "parts"
    for count in (2, 4, 7):
        state = load_state(out, settings) if (out / "state").exists() else fresh_state(settings)
        with pytest.raises(Stop):
            train(run_of(settings, out, stop_after(count)), state)
    state = load_state(out, settings)
    assert state.step == 7
    final = train(run_of(settings, out), state)
    assert final.step == whole.step == 8
    assert same(parameters(final), parameters(whole))
    assert same(flatten(final.learner.average), flatten(whole.learner.average))
    assert not same(flatten(final.learner.average), parameters(final))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            jax.tree.leaves(final.learner.optimizer_state),
            jax.tree.leaves(whole.learner.optimizer_state),
            strict=True,
        )
    )
    assert final.rng.bit_generator.state == whole.rng.bit_generator.state
    assert same(load(out / POLICY).parameters, load(tmp_path / "whole" / POLICY).parameters)
    timing = {"train/seconds", "rollout/seconds"}
    for one, two in zip(read_rows(out), read_rows(tmp_path / "whole"), strict=True):
        assert {k: v for k, v in one.items() if k not in timing} == {
            k: v for k, v in two.items() if k not in timing
        }


class InterruptedScorer(FlipScorer):
    """Stands for Ctrl-C while decisions are scored."""

    def score(self, batch):
        if self.calls > 60:
            raise KeyboardInterrupt
        return super().score(batch)


def test_an_interrupted_step_leaves_no_trace(tmp_path):
    graph = captured("heat_stencil").graph
    problem = Problem(
        "heat_stencil", "toy", graph, scorers={"flip": InterruptedScorer(graph, GOOD)}
    )
    settings = config()
    state = fresh_state(settings)
    run = Run(settings, [problem], [flip_problem("layernorm")], tmp_path, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        train(run, state)
    assert state.step > 0
    saved = load_state(tmp_path, settings)
    assert saved.step == state.step == len(read_rows(tmp_path))
    clean = fresh_state(replace(settings, stages=(replace(settings.stages[0]),)))
    problem.scorers["flip"] = FlipScorer(graph, GOOD)
    with pytest.raises(RuntimeError, match="far enough"):
        train(
            Run(settings, [problem], run.validation, tmp_path / "clean", stop_at(state.step)), clean
        )
    assert same(parameters(saved), parameters(load_state(tmp_path / "clean", settings)))


def stop_at(step):
    def report(phase, done, total, metrics):
        if metrics and metrics["train/step"] == step:
            raise RuntimeError("far enough")

    return report


def test_a_budget_ends_training_with_a_policy(tmp_path):
    settings = config(budget_s=1e-3)
    state = train(run_of(settings, tmp_path), fresh_state(settings))
    assert state.step == 1
    assert load(tmp_path / POLICY).spec.steps == 1


def test_validation_may_have_a_scorer_of_its_own(tmp_path):
    graph = captured(NAMES[2]).graph
    judge = FlipScorer(graph, GOOD)
    validation = [Problem("judged", "toy", graph, scorers={"judge": judge})]  # it has no other
    settings = config(
        stages=(StageConfig("flip", "flip", 1, 0.5),), validation_scorer="judge", validate_every=1
    )
    train(
        Run(settings, [flip_problem(NAMES[0])], validation, tmp_path, lambda *_: None),
        fresh_state(settings),
    )
    assert "validation/p50" in read_rows(tmp_path)[-1]


def test_other_settings_do_not_resume(trained):
    out, _, settings = trained
    with pytest.raises(ConfigError, match=r"ppo\.clip=0\.2"):
        load_state(out, replace(settings, ppo=replace(settings.ppo, clip=0.3)))
    load_state(out, replace(settings, save_every=1, budget_s=5.0))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_state(out / "nowhere", settings)


def test_validation_graphs_are_never_trained_on(tmp_path):
    problem = flip_problem("layernorm")
    with pytest.raises(ConfigError, match="equals the training graph layernorm"):
        Run(config(), [problem], [problem], tmp_path, lambda *_: None)
    with pytest.raises(ConfigError, match="at least one graph"):
        Run(config(), [problem], [], tmp_path, lambda *_: None)


def test_without_imitation_its_stages_are_skipped(tmp_path):
    stages = (
        StageConfig("imitate", "flip", 3, policy=0.0, imitation=1.0),
        StageConfig("flip", "flip", 1),
    )
    settings = config(stages=stages)
    phases = []
    train(run_of(settings, tmp_path, lambda phase, *_: phases.append(phase)), fresh_state(settings))
    assert set(phases) == {"flip"}


def test_the_curriculum_grows_from_small_graphs_to_all():
    problems = [flip_problem(name) for name in NAMES]
    sizes = sorted(len(problem.graph) for problem in problems)
    stage = StageConfig(steps=100, start_nodes=sizes[0])
    limits = [largest_graph(problems, stage, step) for step in range(0, 101, 10)]
    assert limits[0] == sizes[0]
    assert limits == sorted(limits)
    assert limits[5] == limits[-1] == sizes[-1]
    assert largest_graph(problems, StageConfig(steps=100), 0) == sizes[-1]
    tiny = StageConfig(steps=100, start_nodes=1)
    assert largest_graph(problems, tiny, 0) == sizes[0]
    chosen = choose_problems(problems, sizes[1], 5, np.random.default_rng(0))
    assert {len(problem.graph) for problem in chosen} <= set(sizes[:2])


def test_the_margin_keeps_the_default_where_gains_are_not_real():
    def result(speedups, promised):
        count = len(speedups)
        return Evaluation(
            tuple(map(str, range(count))),
            np.array(speedups),
            np.zeros(count),
            np.array(promised),
            np.array(promised),
            np.ones(count, np.int64),
        )

    good = result([0.5, 0.3, 0.0], [0.4, 0.3, 0.001])
    assert choose_margin(good) == 0.2
    bad = result([-0.5, 0.3, 0.4], [0.15, 0.3, 0.5])
    assert choose_margin(bad) == 0.2
    metrics = bad.metrics(0.2)
    assert metrics["validation/worst_gated"] == pytest.approx(np.exp(0.3))
    assert metrics["validation/kept"] == pytest.approx(1 / 3)
    assert metrics["validation/p50"] == pytest.approx(np.exp(0.3))
    nothing = bad.metrics(9.0)
    assert nothing["validation/gated"] == nothing["validation/worst_gated"] == 1.0


def test_rows_after_the_resumed_step_are_dropped(tmp_path):
    with Recorder(tmp_path, 0) as recorder:
        for step in (1, 2, 3):
            recorder.write({"train/step": step, "train/stage": 0, "rollout/reward": step / 3})
    with Recorder(tmp_path, 2) as recorder:
        recorder.write({"train/step": 3, "train/stage": 1})
        with pytest.raises(KeyError, match="made/up"):
            recorder.write({"train/step": 4, "made/up": 1.0})
    rows = read_rows(tmp_path)
    assert [row["train/stage"] for row in rows] == [0, 0, 1]
    assert rows[1]["rollout/reward"] == 2 / 3
    assert "rollout/reward" not in rows[2]


def test_every_metric_is_documented():
    text = page()
    documented = dict(re.findall(r"^\| `([a-z_]+/[a-z_0-9]+)` \| (.+?) \|$", text, re.MULTILINE))
    assert documented == METRICS
    told = set(re.findall(r"`([a-z]+/[a-z_0-9]+)`", text.split("## What to look at")[1]))
    assert told and told <= set(METRICS)
    assert {name for names in PANELS.values() for name in names} <= set(METRICS)
