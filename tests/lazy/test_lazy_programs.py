"""Random programs, captures, the optimizer, and the examples."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.errors import PolicyError, WorkloadError
from graphopt.evaluate.fuzzing import lazy
from graphopt.evaluate.fuzzing.lazy import check_program
from graphopt.lazy.runtime import cut
from graphopt.lazy.tools.capture import read

EXAMPLES = Path(__file__).parents[2] / "examples" / "lazy"


@pytest.fixture(autouse=True)
def fresh():
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()


@pytest.mark.parametrize("block", range(4))
def test_random_programs_op_by_op(block):
    for seed in range(50 * block, 50 * block + 50):
        assert check_program(seed, "op-by-op") is None


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_random_programs_on_all_tiers(seed):
    assert check_program(seed, "auto") is None


def work():
    x = lt.asarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8))
    y = lt.nn.layer_norm(lt.tanh(x @ x) * 2.5 + 0.5)
    return lt.sum(lt.nn.softmax(y) * y)


def test_capture(tmp_path):
    with lt.capture(tmp_path) as graphs:
        float(work())
        float(work())
    (graph,) = graphs
    assert graph.runs == 2
    assert len(graph.graph()) > 5
    (again,) = read(tmp_path)
    assert (again.name, again.data) == (graph.name, graph.data)
    with pytest.raises(WorkloadError):
        read(tmp_path / "nothing")


def test_capture_command(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import graphopt.lazy as lt\nprint(float(lt.sum(lt.ones(3) * 2.5)))\n")
    command = [
        sys.executable,
        "-m",
        "graphopt",
        "capture",
        "--lazy",
        str(script),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "7.5"
    assert len(read(tmp_path / "out")) == 1


def test_the_optimizer_decides_and_is_checked():
    seen = []

    def policy(graph):
        seen.append(graph)
        return graph.default

    lt.set_optimizer(None)
    with lt.config(tier="compiled"):
        expected = float(work())
    lt.reset_metrics()
    lt.set_optimizer(policy)
    try:
        with lt.checked(), lt.config(tier="compiled"):
            assert float(work()) == pytest.approx(expected, rel=1e-5)
    finally:
        lt.set_optimizer("auto")
    assert len(seen) == 1
    assert lt.metrics().optimizer == {"rewritten": 1}
    lt.set_optimizer(None)
    try:
        lt.reset_metrics()
        with lt.config(tier="compiled"):
            assert float(work()) == pytest.approx(expected, rel=1e-5)
        assert lt.metrics().optimizer == {}
    finally:
        lt.set_optimizer("auto")
    with pytest.raises(PolicyError):
        lt.set_optimizer("no such policy")


def test_a_wrong_result_is_replaced_by_the_default():
    with lt.checked(), lt.config(tier="compiled"):
        lt.set_optimizer("xla-default")
        try:
            expected = float(work())
            (entry,) = cut.cache.entries()
            assert entry.default is not None
            honest = entry.executable
            entry.executable = lambda *args: [value + 1 for value in honest(*args)]
            assert float(work()) == expected
            assert any("differs" in name for name in lt.metrics().fallbacks)
            assert float(work()) == expected
        finally:
            lt.set_optimizer("auto")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cnn_learns():
    assert load("digits_cnn").main(epochs=2) > 0.5


@pytest.mark.slow
def test_the_transformer_learns():
    example = load("digits_transformer")
    example.LAYERS = 1  # most of the time is the compile
    assert example.main(epochs=4) > 0.5


def test_the_simulation_comes_to_rest():
    steps, start, end = load("bouncing_particles").main(particles=50)
    assert 10 < steps < 4000
    assert end < 0.02 * start + 1e-3


def test_the_cartpole_policy_improves():
    early, late = load("cartpole_reinforce").main(episodes=80)
    assert late > early


@pytest.mark.parametrize("seed", [89, 550])
def test_rounding_that_a_program_amplifies_is_told_from_mistakes(seed: int) -> None:
    assert check_program(seed, "compiled") is None
    with np.errstate(all="ignore"):
        expected = lazy.run_program(seed, lazy._NumpyWorld())
    allowed = lazy.amplified(seed, expected)
    for k, right in enumerate(expected):
        wrong = list(expected)
        wrong[k] = (right + 1).astype(right.dtype)
        assert lazy.compare(wrong, expected, allowed)
