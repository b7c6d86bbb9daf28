"""Every corpus program builds deterministically, compiles, and returns finite results."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import captured

from graphopt.corpus import Program, ProgramSet
from graphopt.corpus.demo import DEMO
from graphopt.corpus.fuzzing import FUZZ

PROGRAMS = [*DEMO, *FUZZ]

each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def _nothing() -> tuple[Any, tuple[Any, ...]]:
    return abs, (np.float32(0.0),)


def _is_finite(value: np.ndarray[Any, Any]) -> bool:
    """Return whether all real or complex entries are finite; other dtypes always are."""
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return bool(np.isfinite(value).all())
    if jnp.issubdtype(value.dtype, jnp.floating):
        # Half-precision extension types do not all implement isfinite.
        return bool(np.isfinite(value.astype(np.float32)).all())
    return True


@each_program
def test_program_runs_and_is_finite(program: Program) -> None:
    outputs = jax.tree.leaves(captured(program.name).result)
    assert outputs
    for index, output in enumerate(outputs):
        assert _is_finite(np.asarray(output)), f"output {index} of {program.name}"


@each_program
def test_building_twice_gives_identical_arguments(program: Program) -> None:
    first, second = program.build()[1], program.build()[1]
    leaves, shape = jax.tree.flatten(first)
    again, same_shape = jax.tree.flatten(second)
    assert str(shape) == str(same_shape)
    for left, right in zip(leaves, again, strict=True):
        one, two = np.asarray(left), np.asarray(right)
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.dtype.itemsize <= 4
        assert one.tobytes() == two.tobytes()


def test_names_are_unique_across_sets() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names)
    assert names == [*DEMO.names(), *FUZZ.names()]
    assert len(FUZZ) >= 26


def test_registry_keeps_order_and_rejects_duplicates() -> None:
    programs = ProgramSet()
    assert programs.register("b-first", family="test", description="first")(_nothing) is _nothing
    programs.register("a_second", family="test", description="second", chaotic=True)(_nothing)
    assert programs.names() == ("b-first", "a_second")
    assert programs["a_second"].chaotic
    assert "b-first" in programs
    assert "missing" not in programs
    with pytest.raises(ValueError, match="already registered"):
        programs.register("b-first", family="test", description="again")(_nothing)
    with pytest.raises(KeyError, match="b-first, a_second"):
        programs["missing"]


@pytest.mark.parametrize("name", ["", "Upper", "two words", "-edge", "edge_", "9lives", "a--b"])
def test_malformed_names_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="program name"):
        Program(name, "test", _nothing, "description")
    with pytest.raises(ValueError, match="program family"):
        Program("fine", name, _nothing, "description")


@pytest.mark.parametrize("description", ["", " ", "two\nlines"])
def test_malformed_descriptions_are_rejected(description: str) -> None:
    with pytest.raises(ValueError, match="description"):
        Program("fine", "test", _nothing, description)


def test_builder_must_be_callable() -> None:
    builder: Any = None
    with pytest.raises(TypeError, match="cannot be called"):
        Program("fine", "test", builder, "description")


@pytest.mark.parametrize(
    "code",
    [
        "import sys, graphopt.corpus; assert 'jax' not in sys.modules",
        # With an unknown platform, anything that runs jax fails.
        "import graphopt.corpus.demo, graphopt.corpus.fuzzing.programs",
    ],
    ids=["package-without-jax", "programs-without-backend"],
)
def test_imports_stay_light(code: str) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "JAX_PLATFORMS": "none_such", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
