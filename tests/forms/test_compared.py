"""What compares XLA's default with graphopt: the default without forms, graphopt with them."""

from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import graphopt
from graphopt.corpus.capture import capture_modules
from graphopt.corpus.program import Program
from graphopt.evaluate.commands.demo import measure_program
from graphopt.evaluate.evaluation.worker import _policy_columns
from graphopt.evaluate.fuzzing.worker import Worker
from graphopt.hlo import build_graph
from graphopt.learn.tune.confirm import confirm
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import compile_with
from graphopt.policy import resolve
from graphopt.store import Store

IMAGE = np.random.default_rng(0).normal(size=(2, 48, 48, 32)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 3, 1, 32)).astype(np.float32)


def image(x):
    x = lax.conv_general_dilated(
        x, jnp.asarray(WEIGHTS), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=32,
    )  # fmt: skip
    return jnp.tanh(x) * 0.5 + x


def plain(x):
    return jnp.tanh(x) * 0.5 + jnp.sum(x)


PROGRAM = Program("image", "test", lambda: (image, (IMAGE,)), "a depthwise convolution")


def convolves(modules):
    return any(b"convolution" in data for data in modules)


@pytest.fixture(params=[False, True], ids=["nothing installed", "installed"])
def installed(request):
    if request.param:
        graphopt.install(store=False)
    yield
    graphopt.uninstall()
    graphopt.reset_report()


def test_a_compile_has_forms_only_where_it_is_asked(installed):
    assert convolves(compile_with(image, (IMAGE,)).modules)
    formed = compile_with(image, (IMAGE,), forms=True)
    assert not convolves(formed.modules) and formed.forms == ("convolution-shifts",)
    assert not convolves(capture_modules(image, IMAGE))


@pytest.mark.parametrize("jitted", [False, True])
def test_a_subject_has_both_programs(jitted):
    subject = make_subject(jax.jit(image) if jitted else image, (IMAGE,))
    assert subject.forms == ("convolution-shifts",)
    assert convolves(subject.default.modules) and not convolves(d for d, _ in subject.modules)
    assert not convolves(subject.compile(None).modules)
    outcome = confirm(subject, None, 0.05)
    assert outcome.equal and outcome.beside_forms is None and outcome.gain is outcome.times
    outcome = confirm(subject, lambda data: data, 0.05)
    assert outcome.equal and outcome.gain is outcome.beside_forms


def test_a_program_without_forms_is_compiled_once():
    subject = make_subject(plain, (IMAGE,))
    assert subject.start is subject.default and subject.forms == ()
    assert confirm(subject, lambda data: data, 0.05).beside_forms is None


def test_a_program_of_several_functions(installed):
    def several(x):
        first = jax.jit(image)(x)
        return jax.jit(plain)(first) if float(first[0, 0, 0, 0]) > -1e9 else first

    subject = make_subject(several, (IMAGE,))
    assert subject.forms == ("convolution-shifts",)
    assert convolves(subject.default.modules) and not convolves(d for d, _ in subject.modules)
    assert confirm(subject, None, 0.05).equal


def test_the_module_that_is_tuned_is_the_one_that_install_sees(tmp_path):
    subject = make_subject(image, (IMAGE,), name="image")
    wanted = build_graph(subject.modules[0][0]).fingerprint
    with closing(Store(tmp_path / "store.sqlite")) as store:
        result = graphopt.tune(image, IMAGE, budget_s=2, evaluations=2, store=store)
    assert result.modules[0].fingerprint == wanted
    assert result.forms == ("convolution-shifts",) and result.changed
    assert result.verified and result.speedup == result.times.speedup
    assert "forms of operations: convolution-shifts" in str(result)


def test_evaluate_and_demo_count_forms_as_graphopts():
    subject = make_subject(image, (IMAGE,))
    row = _policy_columns(subject, resolve("heuristic"), None)
    assert row["policy_changed"] and row["policy_forms"] == ["convolution-shifts"]
    assert "status" not in row and row["speedup_policy"] == pytest.approx(
        row["default_s"] / row["policy_s"], rel=0.8
    )
    assert measure_program(PROGRAM, "heuristic", 0.05).equal
    assert any(use.name == "convolution-shifts" for use in graphopt.report().forms)
    graphopt.reset_report()


def test_fuzzing_compares_with_jaxs_own_operations():
    worker = Worker(PROGRAM)
    assert convolves(worker.base.modules)
    seen = []
    answer = worker.judge(lambda graph: seen.append(graph) or graph.default)
    assert answer["status"] == "ok", answer
    assert not any(op.name == "convolution" for op in seen[0].ops)


def test_explain_names_the_forms():
    assert "forms of operations: convolution-shifts" in str(graphopt.explain(image, IMAGE))
    assert "forms of operations" not in str(graphopt.explain(plain, IMAGE))
