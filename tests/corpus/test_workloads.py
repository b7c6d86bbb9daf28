"""Finding programs by name, and what is said when they cannot be found."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from graphopt.corpus import Program
from graphopt.corpus.demo import DEMO
from graphopt.corpus.fuzzing import FUZZ
from graphopt.corpus.registry import corpus_programs
from graphopt.corpus.workloads import builtin_programs, load_attribute, load_programs
from graphopt.errors import WorkloadError

NAMES = iter(f"user_workloads_{number}" for number in range(1000))


@pytest.fixture
def module(tmp_path: Path, monkeypatch):
    """Writes a module into the current directory; returns its name, which no other test uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    known = set(sys.modules)

    def write(code: str, package: str = "") -> str:
        name = next(NAMES)
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(code))
        return f"{package}.{name}" if package else name

    yield write
    for name in set(sys.modules) - known:
        if name.startswith(("user_workloads", "user_package")):
            del sys.modules[name]


BUILDERS = """
    import numpy as np

    def double():
        return (lambda x: 2 * x), (np.arange(3.0),)

    WORKLOADS = {"double": double, "also_double": double}
    NUMBER = 3
    MIXED = {"double": double, "three": 3}
    EMPTY = {}
"""


def test_builtin_sets():
    assert list(load_programs("demo")) == list(DEMO.names())
    assert list(load_programs("fuzz")) == list(FUZZ.names())
    names = [*DEMO.names(), *FUZZ.names(), *corpus_programs().names()]
    assert list(builtin_programs()) == names
    for programs in (load_programs("demo"), load_programs("fuzz"), builtin_programs()):
        assert all(program.name == name for name, program in programs.items())


def test_a_dict_of_builders_in_the_current_directory(module):
    programs = load_programs(f"{module(BUILDERS)}:WORKLOADS")
    assert list(programs) == ["double", "also_double"]
    assert all(isinstance(program, Program) for program in programs.values())
    fn, args = programs["double"].build()
    np.testing.assert_array_equal(fn(*args), [0.0, 2.0, 4.0])


def test_a_module_of_a_package(module):
    name = module(BUILDERS, "user_package")
    assert name.startswith("user_package.")
    assert list(load_programs(f"{name}:WORKLOADS")) == ["double", "also_double"]


def test_builders_are_not_called_before_they_are_needed(module):
    name = module("def explode(): raise ValueError\nWORKLOADS = {'explode': explode}")
    assert list(load_programs(f"{name}:WORKLOADS")) == ["explode"]


def test_any_attribute(module):
    assert load_attribute(f"{module(BUILDERS)}:NUMBER") == 3


@pytest.mark.parametrize(
    "key", ["ResNet 50 / train", "MLP", "9lives", "a--b", "größe", "-x-", "step (small)", "_"]
)
def test_any_text_names_a_program(module, key):
    name = module(f"WORKLOADS = {{{key!r}: lambda: (abs, (1.0,))}}")
    programs = load_programs(f"{name}:WORKLOADS")
    assert list(programs) == [key], "programs are chosen by the user's name"
    assert programs[key].build() == (abs, (1.0,))


@pytest.mark.parametrize("spec", ["", "nonsense", "module:", ":ATTRIBUTE", ":", "demo.fuzz"])
def test_a_specification_of_another_form(spec):
    with pytest.raises(WorkloadError, match=r"not of the form pkg\.module:ATTRIBUTE"):
        load_programs(spec)


@pytest.mark.parametrize(
    "name", ["no_such_module", "no.such.module", ".relative", "a..b", "os.nope"]
)
def test_a_module_that_cannot_be_found(module, name):
    with pytest.raises(WorkloadError, match="cannot be imported") as caught:
        load_programs(f"{name}:WORKLOADS")
    assert caught.value.__cause__ is not None
    assert caught.value.where == f"{name}:WORKLOADS"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_dependency", "no_such_dependency"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
    ],
    ids=["raises", "dependency", "syntax", "exits"],
)
def test_a_module_that_fails_when_imported(module, code, message):
    with pytest.raises(WorkloadError, match=message):
        load_programs(f"{module(code)}:WORKLOADS")


@pytest.mark.parametrize("attribute", ["NO_SUCH", "WORKLOADS.double", "double()"])
def test_an_attribute_that_is_not_there(module, attribute):
    with pytest.raises(WorkloadError, match="has no attribute"):
        load_programs(f"{module(BUILDERS)}:{attribute}")


@pytest.mark.parametrize("attribute", ["NUMBER", "double"])
def test_an_attribute_that_is_no_dict(module, attribute):
    with pytest.raises(WorkloadError, match="not a dict from name to builder"):
        load_programs(f"{module(BUILDERS)}:{attribute}")


def test_a_value_that_is_no_builder(module):
    with pytest.raises(WorkloadError, match="'three', which is not a builder"):
        load_programs(f"{module(BUILDERS)}:MIXED")


def test_a_key_that_is_no_text(module):
    with pytest.raises(WorkloadError):
        load_programs(f"{module('WORKLOADS = {3: abs}')}:WORKLOADS")


def test_errors_say_how_to_fix_it(module):
    with pytest.raises(WorkloadError, match=r"pkg\.module:WORKLOADS"):
        load_programs(f"{module(BUILDERS)}:NUMBER")


def test_the_import_path_does_not_grow(module):
    spec = f"{module(BUILDERS)}:WORKLOADS"
    load_programs(spec)
    before = list(sys.path)
    load_programs(spec)
    assert sys.path == before
