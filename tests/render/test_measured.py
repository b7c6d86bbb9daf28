"""Explanations measure: the whole program, and the lines of source that changed."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import graphopt
from graphopt.cli import main
from graphopt.measure.comparing.timing import Comparison
from graphopt.measure.line_times import LineTime
from graphopt.render.measured import Measured, line_changes
from graphopt.render.moves import value_text


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    """No tuned winners but the test's own."""
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.sqlite"))


def pendulum(state):
    """A loop whose body XLA computes as many kernels, and graphopt as one native function."""

    def step(carry, _):
        angle, speed, seen = carry
        for _ in range(4):
            force = jnp.where(jnp.abs(angle) > 1.0, -jnp.sign(angle), 0.1)
            speed = speed + 0.01 * (force - jnp.sin(angle))
            angle = jnp.roll(angle + 0.01 * speed, 1)
            seen = seen.at[0].max(speed.max())
        # No jaxlib makes a loop native by itself that holds a product.
        turned = jnp.outer(angle, speed) @ jnp.outer(speed, angle)
        return (angle, speed, seen), speed.sum() + turned[0, 1]

    return jax.lax.scan(step, (state, state * 0.1, state), None, length=300)


@pytest.fixture(scope="module")
def explained():
    return graphopt.explain(pendulum, jnp.linspace(0.0, 1.0, 8), measure_s=0.3)


def test_a_program_that_becomes_faster_is_said_to(explained):
    measured = explained.measured
    assert measured is not None and measured.equal
    assert (
        explained.speedup == measured.times.speedup > 1.15
    )  # 1.0 would be a page nobody can trust
    assert explained.text().splitlines()[1].startswith("measured: ")
    assert any("rewritten" in str(record) for record in measured.records)


def test_the_lines_that_changed_are_the_users(explained):
    lines = [change for change in explained.measured.lines if change.line is not None]
    assert {Path(change.line.file).name for change in lines} == {Path(__file__).name}
    assert sum(c.before_kernels for c in lines) > 10 * sum(c.after_kernels for c in lines)


def test_an_explanation_is_data_and_a_page(explained):
    data = json.loads(json.dumps(explained.to_dict()))
    assert data["measured"]["speedup"] == explained.speedup == data["speedup"]
    assert data["measured"]["lines"] and data["modules"][0]["changes"]
    assert f"{explained.speedup:.2f}x" in explained.html()


@pytest.mark.parametrize(
    ("args", "options", "why"),
    [
        ((jax.ShapeDtypeStruct((8,), jnp.float32),), {}, "shapes"),
        ((jnp.ones(8),), {"measure_s": 0.0}, "no time"),
    ],
)
def test_what_was_not_measured_says_why(args, options, why):
    explanation = graphopt.explain(pendulum, *args, **options)
    assert explanation.measured is None and why in explanation.why_estimated
    assert f"not measured: {explanation.why_estimated}" in explanation.text()


def test_a_program_that_fails_when_it_runs_is_explained_all_the_same():
    def refuse(x):
        raise ValueError("no weather today")

    def fn(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jnp.sin(jax.pure_callback(refuse, shape, jnp.cos(x)) * 2.0)

    explanation = graphopt.explain(fn, jnp.ones(8), measure_s=0.1)
    assert explanation.measured is None and "could not be run" in explanation.why_estimated
    assert explanation.modules


def test_restructured_operations_have_the_names_of_their_rows(explained):
    graph = explained.modules[0].graph
    assert value_text(graph, "restructure", 0) == "keep"
    assert value_text(graph, "restructure", 1) == "scatter-loop"


def test_lines_of_one_side_only_count_as_nothing_on_the_other():
    (change,) = line_changes([LineTime(None, 2.0, 8.0)], [])
    assert (change.before_s, change.after_s, change.after_kernels) == (2.0, 0.0, 0.0)
    times = Comparison(2.0, 1.0, 2.0, 1.9, 2.1, 9)
    wrong = Measured(times, False, 0.5, (), (change,)).text()
    assert (
        "RESULTS DIFFER" in wrong[0] and "loops and dispatch: 2 s, 8 kernels -> 0 ns" in wrong[-1]
    )


def test_the_command_prints_json(capsys):
    assert main(["explain", "heat_stencil", "--json", "--measure-s", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["why_estimated"]
