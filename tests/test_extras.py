"""Optional dependencies: what works without them, and what the errors say that ask for them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.processes import run_python

from graphopt import extras
from graphopt.errors import MissingExtraError
from graphopt.measure.bank import predictor
from graphopt.measure.bank.kernels import COUNT
from graphopt.store.kernels import Kernel

BLOCKED = sorted({module for modules in extras.EXTRAS.values() for module in modules})
BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
PROJECT = Path(__file__).parent.parent / "pyproject.toml"
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "orbax": "orbax-checkpoint",
    "yaml": "pyyaml",
    "ray": "ray[client]",
    "opentelemetry": "opentelemetry-sdk",
}


def without_extras(script: str, but: tuple[str, ...] = ()) -> tuple[int, str]:
    """Runs a script where no module of an extra is there, but for those named."""
    blocked = [module for module in BLOCKED if module not in but]
    done = run_python("-c", f"BLOCKED = {blocked}\n{BLOCK}{script}")
    return done.returncode, done.stdout + done.stderr


def command(entry: str, *arguments: str) -> tuple[int, str]:
    return without_extras(f"from {entry} import main\nsys.exit(main({list(arguments)}))")


def test_a_program_is_rewritten_with_the_base_dependencies_alone():
    status, output = without_extras(
        """
import graphopt
from graphopt.corpus.demo import DEMO

fn, args = next(program for program in DEMO if program.name == "cartpole_rollout").build()
graphopt.install(store=False)
import jax

jax.block_until_ready(jax.jit(fn)(*args))
report = graphopt.report()
assert any(record.outcome == "rewritten" for record in report.records), report
print(report)
"""
    )
    assert status == 0, output
    assert "checkpoint cpu" in output


def test_environments_need_gymnasium_alone():
    status, output = without_extras(
        """
import gymnasium
import graphopt.env
import types

own = sys.modules["own"] = types.ModuleType("own")
own.WORKLOADS = {"double": lambda: (lambda x: x + x, (1.0,))}
for graphs in (None, "heat_stencil", ["layernorm", "lstm"], "own:WORKLOADS"):
    arguments = {} if graphs is None else {"graphs": graphs}
    for env_id in (*graphopt.env.IDS, graphopt.env.ALTERNATIVES_ID):
        env = gymnasium.make(env_id, **arguments)
        env.reset(seed=0)
        env.step(env.action_space.sample())
""",
        but=("gymnasium",),
    )
    assert status == 0, output


@pytest.mark.parametrize("arguments", [("--help",), ("doctor",), ("tune", "--help")])
def test_commands_that_need_no_extra(arguments):
    status, output = command("graphopt.cli", *arguments)
    assert status == 0, output


@pytest.mark.parametrize(
    ("entry", "arguments", "extra"),
    [
        ("graphopt.learn.cli", ("--help",), "train"),
        ("graphopt.cli", ("train", "--toy"), "train"),
        ("graphopt.cli", ("ship", "nowhere"), "train"),
        ("graphopt.cli", ("corpus", "list"), "train"),
        ("graphopt.cli", ("evaluate",), "plots"),
    ],
)
def test_commands_name_the_extra_that_they_need(entry, arguments, extra):
    status, output = command(entry, *arguments)
    assert status == 2, output
    assert f'pip install "graphopt[{extra}]"' in output
    assert extras.EXTRAS[extra][0] in output
    assert "Traceback" not in output


def test_importing_the_environments_says_what_is_missing():
    status, output = without_extras("import graphopt.env")
    assert status == 1
    assert "an environment needs gymnasium" in output
    assert 'pip install "graphopt[env]"' in output


def test_the_error_is_an_import_error_too(monkeypatch):
    monkeypatch.setattr(extras, "available", lambda module: module != "optax")
    with pytest.raises(ImportError) as caught:
        extras.require("training a policy", "train")
    assert isinstance(caught.value, MissingExtraError)
    assert str(caught.value) == (
        "training a policy needs optax, which cannot be imported (optional dependencies [train]). "
        'Install what is missing: pip install "graphopt[train]".'
    )
    extras.require("a picture", "plots")


def test_kernel_times_without_trees_are_uncertain(monkeypatch, caplog):
    monkeypatch.setattr(predictor, "available", lambda module: False)
    kernels = [Kernel(f"k{i}", 1000.0 * i, 1, (float(i),) * COUNT) for i in range(1, 80)]
    model = predictor.KernelModel(kernels)
    ns, spread = model.predict(predictor.np.ones((2, COUNT)))
    assert (ns > 0).all() and (spread == 0.7).all()
    assert 'pip install "graphopt[tune]"' in caplog.text


def test_the_table_is_that_of_the_project_file():
    optional = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for extra, modules in extras.EXTRAS.items():
        names = {re.split(r"[\[>=<]", requirement)[0] for requirement in optional[extra]}
        named = {DISTRIBUTIONS.get(module, module) for module in modules}
        expected = {re.split(r"\[", name)[0] for name in named}
        assert names == expected | ({"orbax-checkpoint"} & names)
