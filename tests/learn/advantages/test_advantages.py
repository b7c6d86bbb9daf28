"""Learning advantages: duels become states, families stay apart, unseen ones are judged."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.advantages import PROGRAMS, SMALL, gain_of_kind, write_made_up
from support.captures import captured

from graphopt.errors import ConfigError
from graphopt.learn.advantages.command import parse
from graphopt.learn.advantages.config import AdvantagesConfig, FitConfig
from graphopt.learn.advantages.data import decode_edit, folds_of, read_states
from graphopt.learn.advantages.fit import fit, say, together
from graphopt.learn.advantages.run import NETWORK, UNITS, Run
from graphopt.learn.advantages.scores import NAMES, correlation, gain_of, possible, score
from graphopt.learn.advantages.session import advantages_session
from graphopt.learn.advantages.trees import fit_trees
from graphopt.policy.advantages.checkpoint import load_advantages
from graphopt.tasks.parts import read_parts

FIT = FitConfig(epochs=25, nodes=512, alternatives=128, dropout=0.0)
CONFIG = AdvantagesConfig(SMALL, FIT, folds=2, members=2, variants=("trees", "mlp"), least_seen=5)


@pytest.fixture(scope="module")
def duels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("duels")
    return folder, write_made_up(folder)


@pytest.fixture(scope="module")
def states(duels):
    return read_states(duels[0])[0]


def test_every_duel_becomes_an_alternative_of_a_state(duels):
    folder, count = duels
    found, counted = read_states(folder)
    assert counted.duels == count == sum(len(s) for s in found)
    assert not counted.failed and not counted.unfit
    assert {s.family for s in found} == {f"family {name}" for name in PROGRAMS}
    assert {s.start for s in found} == {"heuristic", "default"}
    for one in found:
        assert len(one) == len(one.state) == len(one.kinds) == len(one.looks)
        assert (one.looks[:, 2] < one.looks[:, 0]).all()
        assert (
            np.allclose(one.looks[:, :2].mean(axis=1), one.target, atol=1e-3)
            and (one.noise > 0).all()
        )
        if one.start == "heuristic":
            assert np.allclose(one.target, [gain_of_kind(kind) for kind in one.kinds], atol=1e-3)


def test_the_duels_of_the_repository_can_be_read():
    folder = Path(__file__).parents[3] / "data" / "duels"
    parts = list(read_parts(folder))
    found, counted = read_states(folder)
    total = counted.duels + counted.failed + counted.unfit
    kinds = {
        (part.card["machine"], part.card["jaxlib"], row["key"])
        for part in parts
        for row in part.duels
    }
    assert total == len(kinds) > 6000
    assert counted.unfit < 0.1 * total
    assert len({one.family for one in found}) > 20
    assert {one.start for one in found} == {"heuristic", "default", "policy"}


def test_a_folder_without_duels_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no duel"):
        read_states(tmp_path)


def test_edits_go_by_name():
    graph = captured("lstm").graph
    unit = graph.units[-1].name
    assert decode_edit(graph, ["unit", 3, unit]) == ("unit", 3, len(graph.units) - 1)
    assert decode_edit(graph, ["fuse", 0, 1]) == ("fuse", 0, 1)
    with pytest.raises(KeyError):
        decode_edit(graph, ["restructure", 3, "no such row"])
    with pytest.raises(IndexError):
        decode_edit(graph, ["fuse", len(graph), 1])


def test_folds_keep_families_whole(states):
    folds = folds_of(states, 3, seed=1)
    assert set(folds) == {0, 1, 2}
    for family in {s.family for s in states}:
        assert len({f for f, s in zip(folds, states, strict=True) if s.family == family}) == 1
    with pytest.raises(ConfigError, match="folds"):
        folds_of(states, 7, seed=1)


def test_what_is_learned_holds_on_families_that_were_not_seen(states):
    folds = folds_of(states, 2, 0)
    train = [s for s, f in zip(states, folds, strict=True) if f]
    unseen = [s for s, f in zip(states, folds, strict=True) if not f and s.start == "heuristic"]
    flat = fit(train, SMALL, replace(FIT, epochs=150, learning_rate=4e-3), 0)
    found = score(unseen, say(unseen, SMALL, flat)).values
    assert found["sign"] > 0.8 and found["rank"] > 0.4
    fresh = score(unseen, say(unseen, SMALL, fit(train, SMALL, FitConfig(epochs=1), 0))).values
    assert found["error"] < 0.7 * fresh["error"]
    trees = score(unseen, fit_trees(train, unseen, FIT, 0)).values
    assert trees["sign"] > 0.9


def test_equal_seeds_learn_the_same(states):
    few = states[:4]
    short = FitConfig(epochs=2, nodes=512, alternatives=128)
    one, two, other = (fit(few, SMALL, short, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not all(np.array_equal(one[name], other[name]) for name in one)


def test_an_ensemble_doubts_where_its_members_differ():
    sure = np.array([0.1, 0.1], np.float32)
    members = [
        [(np.array([0.2, -0.4], np.float32), sure)],
        [(np.array([0.2, 0.4], np.float32), sure)],
    ]
    ((mean, deviation),) = together(members)
    assert np.allclose(mean, [0.2, 0.0]) and deviation[0] == pytest.approx(0.1)
    assert deviation[1] == pytest.approx(math.hypot(0.1, 0.4), rel=1e-3)


def test_scores_of_perfect_and_of_wrong_answers(states):
    narrow = [(s.target.astype(np.float32), np.full(len(s), 1e-3, np.float32)) for s in states]
    right = score(states, narrow).values
    assert right.keys() == NAMES.keys()
    assert right["sign"] == 1.0 and right["error"] < 1e-6 and right["inside_95"] == 1.0
    assert right["gain_1"] == pytest.approx(right["possible"], abs=0.03)
    wrong = score(states, [(-mean, deviation) for mean, deviation in narrow]).values
    assert wrong["sign"] == 0.0 and wrong["rank"] < -0.9 and wrong["gain_1"] < 0.0
    assert wrong["regret"] > right["regret"]


def test_the_best_is_found_by_one_look_and_read_by_the_other(states):
    one = next(s for s in states if len(s) > 3)
    looks = np.full((len(one), 3), -0.1)
    looks[0] = (0.9, 0.9, -0.2)
    looks[1] = (0.5, 0.1, 0.3)
    looks[2] = (0.6, 0.4, 0.2)
    changed = type(one)(**{**one.__dict__, "looks": looks})
    assert possible(changed) == 0.1
    looks[1:, 2] = -0.1
    assert possible(changed) == 0.0
    said = np.full(len(one), -1.0, np.float32), np.full(len(one), 0.1, np.float32)
    assert gain_of(one, said, 1.0) == (0.0, False)
    said[0][2] = 0.2
    assert gain_of(one, said, 1.0) == (one.target[2], True)
    assert gain_of(one, said, 3.0) == (0.0, False)


def test_correlation_of_ranks():
    rising = np.arange(6.0)
    assert correlation(rising, rising**3) == pytest.approx(1.0)
    assert correlation(rising, -rising) == pytest.approx(-1.0)
    assert math.isnan(correlation(rising, np.ones(6))) and math.isnan(
        correlation(rising[:3], rising[:3])
    )


def test_a_run_judges_writes_a_policy_and_goes_on_where_it_was(duels, tmp_path):
    config = AdvantagesConfig(
        SMALL, FitConfig(epochs=2, nodes=512, alternatives=128), 2, 2, ("trees",), least_seen=5
    )
    out = tmp_path / "run"
    printed = io.StringIO()
    assert advantages_session(config, duels[0], out, Console(file=printed, width=200)) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["scores"].keys() == {"network", "ensemble", "trees"}
    assert report["scores"][NETWORK].keys() >= NAMES.keys()
    assert "families that were not learned from" in printed.getvalue()
    table = (out / "report.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == [
        *report["scores"],
        "a second look",
    ]
    assert len({line.count("|") for line in table}) == 1
    checkpoint = load_advantages(out / "policy")
    assert checkpoint.spec.duels == duels[1] and "kernel native" in checkpoint.spec.rule.kinds
    assert "several" not in checkpoint.spec.rule.kinds
    files = {path: path.stat().st_mtime_ns for path in (out / UNITS).glob("*.npz")}
    states, _ = read_states(duels[0])
    told = []
    again = Run(config, states, out, lambda *what: told.append(what))
    assert len(files) == again.networks
    gone = out / UNITS / "fold0-0.npz"
    gone.unlink()
    again.judge()
    assert {name for name, *_ in told} == {"fold0-0"}
    kept = sorted(set(files) - {gone})
    assert all(path.stat().st_mtime_ns == files[path] for path in kept)
    with pytest.raises(ConfigError, match="other settings"):
        Run(CONFIG, states, out, lambda *what: None)
    (out / UNITS / "fold1-0.npz").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="cannot be read"):
        again.judge()


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("folds: 3\nmodel: {hidden: 16}\nfit: {epochs: 7}\n")
    found = parse(["--config", str(path), "--fit.epochs", "9", "--model.no-graph"])
    assert found.settings.folds == 3 and found.settings.fit.epochs == 9
    assert found.settings.model.hidden == 16 and not found.settings.model.graph
    path.write_text("foldz: 3\n")
    with pytest.raises(ConfigError, match="foldz"):
        parse(["--config", str(path)])


@pytest.mark.parametrize(
    "bad", [{"folds": 1}, {"members": 0}, {"data_share": 0.0}, {"variants": ("magic",)}]
)
def test_settings_are_checked(bad):
    with pytest.raises(ConfigError, match="out of range"):
        AdvantagesConfig(**bad)
