"""Checkpoints: what was saved is loaded; what does not fit is refused by name; nothing is half written."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support.captures import MACHINE, captured
from support.networks import SMALL, parameters

from graphopt import policy as policies
from graphopt.errors import PolicyError
from graphopt.files import write_directory
from graphopt.hlo.restructure import CODE
from graphopt.policy.heuristic.steps import STEPS, heuristic
from graphopt.policy.network.checkpoint import PolicySpec, load, load_orbax, save
from graphopt.policy.network.decision_space import NETWORK_ROWS, KnownRows
from graphopt.policy.network.files import SPEC, WEIGHTS
from graphopt.policy.network.learned import LearnedPolicy

META = {"steps": 7, "trained_on": ("ab12", "cd34"), "metrics": {"validation/gated": 1.25}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "policy"
    save(path, PolicySpec(SMALL, 0.05, **META), parameters(SMALL))
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """A checkpoint whose files a test may damage."""
    for name in (SPEC, WEIGHTS):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def edit(path, change):
    data = json.loads((path / SPEC).read_text())
    change(data)
    (path / SPEC).write_text(json.dumps(data))


def test_round_trip(saved):
    checkpoint = load(saved)
    assert checkpoint.spec == PolicySpec(SMALL, 0.05, **META)
    expected = parameters(SMALL)
    assert checkpoint.parameters.keys() == expected.keys()
    assert all(np.array_equal(checkpoint.parameters[n], expected[n]) for n in expected)
    again = load_orbax(saved)
    assert all(np.array_equal(again[n], expected[n]) for n in expected)


def test_a_checkpoint_says_what_it_knows(saved, tmp_path):
    data = json.loads((saved / SPEC).read_text())
    assert data["heuristic"] == list(STEPS)
    assert data["decisions"]["restructure"]["trained"] == list(NETWORK_ROWS)
    known = KnownRows(("keep", "unroll", "gone"), ("keep", "unroll"))
    spec = PolicySpec(SMALL, 0.05, rows=known, heuristic=("a step of old",))
    save(tmp_path / "old", spec, parameters(SMALL))
    found = load(tmp_path / "old")
    assert found.spec.rows == found.policy().rows == known
    assert found.spec.heuristic == ("a step of old",)
    graph = captured("cartpole_rollout").graph
    rows = found.policy().propose(graph).decisions.restructure
    start = heuristic(graph)
    assert start is not None
    assert set(rows[rows != start.restructure].tolist()) <= {0, CODE["unroll"]}


@pytest.mark.parametrize(
    ("columns", "trained"),
    [
        ([], []),
        (["unroll"], ["unroll"]),
        (["keep", "keep"], ["keep"]),
        (["keep"], ["keep", "unroll"]),
        (["keep", "unroll"], ["unroll"]),
        (["keep", *map(str, range(16))], ["keep"]),
    ],
)
def test_rows_that_make_no_sense_are_refused(copy, columns, trained):
    found = {"columns": columns, "trained": trained}
    edit(copy, lambda data: data["decisions"].update(restructure=found))
    with pytest.raises(PolicyError, match=r"decisions\.restructure\."):
        load(copy)


def test_a_checkpoint_is_a_policy(saved, tmp_path):
    found = policies.resolve(str(saved))
    assert found.built_in
    assert found.key == f"learned-{load(saved).digest}"
    assert isinstance(found.decide, LearnedPolicy)
    assert policies.resolve(saved).key == found.key
    other = {**parameters(SMALL), "value_out.bias": np.ones(1, np.float32)}
    save(tmp_path / "other", PolicySpec(SMALL, 0.05, **META), other)
    assert policies.resolve(tmp_path / "other").key != found.key
    graph = captured("lstm").graph
    one = LearnedPolicy(load(saved).policy().network, 0.0, MACHINE).propose(graph)
    two = LearnedPolicy(load(saved).policy().network, 0.0, MACHINE).propose(graph)
    assert one.decisions.same_as(two.decisions)


def test_a_path_that_holds_nothing_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PolicyError, match=r"spec\.json cannot be read"):
            policies.resolve(str(path))


EDITS = {
    "format": lambda d: d.update(format=2),
    "features.version": lambda d: d["features"].update(version=99),
    "features.numeric[3]": lambda d: d["features"]["numeric"].__setitem__(3, "other"),
    "features.dtypes": lambda d: d["features"].update(dtypes="F32"),
    "decisions.fields": lambda d: d["decisions"]["fields"].append("flavour"),
    "decisions.values": lambda d: d["decisions"]["values"].pop(),
    "jaxlib": lambda d: d["jaxlib"].update(min="99.0"),
    "model.hidden": lambda d: d["model"].update(hidden=10**9),
    "model.width": lambda d: d["model"].update(width=3),
    "model.joint": lambda d: d["model"].update(joint=1),
    "model.layers": lambda d: d["model"].pop("layers"),
    "unusable network size heads": lambda d: d["model"].update(heads=3),
    "weights": lambda d: d["model"].update(hidden=18),
    "weights.sha256": lambda d: d["weights"].update(sha256="0" * 64),
    "trained_on": lambda d: d.update(trained_on=[1]),
    "min_gain": lambda d: d.update(min_gain="high"),
    "features.operations": lambda d: d["features"].update(operations=["add"]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_specification_that_does_not_fit_is_refused_by_name(copy, name):
    edit(copy, EDITS[name])
    with pytest.raises(PolicyError) as caught:
        load(copy)
    assert name in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": 1}', "[" * 100_000])
def test_a_damaged_specification_is_refused(copy, text):
    (copy / SPEC).write_text(text)
    with pytest.raises(PolicyError):
        load(copy)


def replace_weights(path, arrays=None, data=None):
    """Puts other weights in place, with the right checksum."""
    import hashlib

    if data is None:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        data = buffer.getvalue()
    (path / WEIGHTS).write_bytes(data)
    edit(path, lambda d: d["weights"].update(sha256=hashlib.sha256(data).hexdigest()))


def test_weights_that_do_not_fit_are_refused(copy):
    good = parameters(SMALL)
    name = "embed.kernel"
    for bad in (
        good[name].T,
        good[name].astype(np.float64),
        np.full_like(good[name], np.nan),
        np.zeros((2000, 2000), np.float32),
    ):
        replace_weights(copy, {**good, name: bad})
        with pytest.raises(PolicyError, match=r"embed\.kernel"):
            load(copy)
    replace_weights(copy, {k: v for k, v in good.items() if k != name})
    with pytest.raises(PolicyError, match=r"embed\.kernel"):
        load(copy)
    replace_weights(copy, data=b"not an archive")
    with pytest.raises(PolicyError, match=r"weights\.npz"):
        load(copy)


class Exploit:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a checkpoint ran code",))


def test_pickled_weights_run_no_code(copy):
    good = parameters(SMALL)
    objects = np.empty(good["value_out.bias"].shape, object)
    objects[:] = Exploit()
    replace_weights(copy, {**good, "value_out.bias": objects})
    with pytest.raises(PolicyError):
        load(copy)
    replace_weights(copy, data=pickle.dumps(Exploit()))
    with pytest.raises(PolicyError):
        load(copy)


def test_operations_are_found_by_name(copy):
    good = parameters(SMALL)
    operations = json.loads((copy / SPEC).read_text())["features"]["operations"]
    order = [operations.index("unknown"), operations.index("add"), operations.index("dot")]
    replace_weights(copy, {**good, "op_embedding": good["op_embedding"][order]})
    edit(copy, lambda d: d["features"].update(operations=[operations[i] for i in order]))
    rows = load(copy).parameters["op_embedding"]
    assert np.array_equal(rows[order], good["op_embedding"][order])
    # What the checkpoint has never seen looks like an unknown operation to it.
    assert np.array_equal(rows[operations.index("tanh")], good["op_embedding"][order[0]])


def test_saving_checks_the_parameters(tmp_path):
    with pytest.raises(PolicyError, match=r"embed\.bias"):
        save(
            tmp_path / "bad",
            PolicySpec(SMALL, 0.0),
            {k: v for k, v in parameters(SMALL).items() if k != "embed.bias"},
        )
    assert not (tmp_path / "bad").exists()


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "thing"
    write_directory(path, lambda folder: (folder / "a").write_text("one") and None)

    def fail(folder):
        (folder / "a").write_text("half")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_directory(path, fail)
    assert (path / "a").read_text() == "one"
    write_directory(path, lambda folder: (folder / "b").write_text("two") and None)
    assert [p.name for p in path.iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["thing"]


def test_loading_imports_no_training_framework(saved):
    script = (
        "import sys; from graphopt.policy import resolve; "
        f"resolve({str(saved)!r}); "
        "bad = {'flax', 'optax', 'orbax', 'jraph', 'tensorboardX'} & set(sys.modules); "
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
