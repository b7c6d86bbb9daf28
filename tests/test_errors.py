import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from graphopt import errors
from graphopt.corpus import Program
from graphopt.corpus.workloads import build_program, load_attribute
from graphopt.errors import (
    DecisionError,
    GraphOptError,
    VerificationError,
    WorkloadError,
    own_traceback,
)

TEXT = {"what": "a value is outside its mask", "where": "node 3", "fix": "Take another value."}
FIELDS = {
    "UnsupportedModuleError": {"rule": "donation"},
    "DecisionError": {"field": "fuse", "node": 3, "rule": "expensive-reuse"},
    "VerificationError": {"rule": "acyclic", "node": "fusion.7"},
}
CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, GraphOptError)
]


def make(kind: type[GraphOptError]) -> GraphOptError:
    return kind(**TEXT, **FIELDS.get(kind.__name__, {}))


def fail(kind: type[GraphOptError]) -> None:
    raise make(kind)


def test_the_tree_is_complete():
    assert {kind.__name__ for kind in CLASSES} == {
        "GraphOptError",
        "ModuleFormatError",
        "UnsupportedModuleError",
        "DecisionError",
        "VerificationError",
        "PolicyError",
        "UnsupportedJaxError",
        "WorkloadError",
        "ConfigError",
        "MissingExtraError",
        "StoreError",
        "MeasureError",
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_message_says_what_where_and_how_to_fix(kind):
    error = make(kind)
    assert str(error) == "a value is outside its mask (node 3). Take another value."
    assert {name: getattr(error, name) for name in TEXT} == TEXT


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not GraphOptError])
def test_docstring_says_when_it_is_raised(kind):
    assert kind.__doc__.startswith("Raised ")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_keeps_everything(kind, protocol):
    error = make(kind)
    error.add_note("seen while tuning")
    loaded = pickle.loads(pickle.dumps(error, protocol))
    assert type(loaded) is kind
    assert str(loaded) == str(error)
    assert vars(loaded) == vars(error)
    assert loaded.__notes__ == ["seen while tuning"]


def test_copies_are_equal():
    error = make(VerificationError)
    for duplicate in (copy.copy(error), copy.deepcopy(error)):
        assert vars(duplicate) == vars(error)
        assert duplicate.args == error.args


def test_errors_cross_process_borders():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(fail, DecisionError).exception(timeout=60)
    assert isinstance(error, DecisionError)
    assert (error.field, error.node, error.rule) == ("fuse", 3, "expensive-reuse")
    assert str(error) == str(make(DecisionError))


def test_the_parts_of_the_message_are_required():
    with pytest.raises(TypeError):
        GraphOptError(what="something", where="somewhere")
    with pytest.raises(TypeError):
        GraphOptError("positional")


def test_an_error_of_the_users_program_keeps_its_own_traceback():
    def program():
        raise OSError("no data")

    with pytest.raises(WorkloadError) as caught:
        build_program(Program("mine", "user", program, "a program"), "mine")
    lines = own_traceback(caught.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "OSError: no data"
    (place,) = (line for line in lines if "File " in line)
    assert __file__ in place and place.endswith("in program")


@pytest.mark.parametrize("spec", ["no_such_module:x", "json:WORKLOADS"])
def test_without_a_line_of_the_user_there_is_no_traceback(spec):
    with pytest.raises(WorkloadError) as caught:
        load_attribute(spec)
    assert own_traceback(caught.value) == ""
