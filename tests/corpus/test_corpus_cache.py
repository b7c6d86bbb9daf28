"""Captures on disk: found again, shared by processes, and made anew when damaged or out of date."""

from __future__ import annotations

import json
import os
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from support.processes import PACKAGE_PARENT, environment

from graphopt.cli import main
from graphopt.corpus import CorpusCache, Entry, Program, add_to_corpus, collect, load_corpus
from graphopt.corpus.cache import Record, default_directory, digest_of
from graphopt.errors import ConfigError, WorkloadError

NAME = "fft_long_convolution"

MODULE = """
    import os, signal, time
    import jax.numpy as jnp
    import numpy as np

    def wave():
        return (lambda x: jnp.sin(x) * x + jnp.cos(x) * 2 + jnp.exp(-x)), (np.ones(8),)

    def unbuildable():
        raise OSError("no such data set")

    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    def sleeps():
        time.sleep(600)

    def donates():
        import jax
        inner = jax.jit(lambda x: x + 1, donate_argnums=0)
        return (lambda x: inner(x) * jnp.sin(x)), (np.ones(8),)
"""


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "corpus"


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """Makes ``corpus_users.py`` importable, here and in children."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus_users.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    return "corpus_users"


def entry(directory: Path, name: str = NAME) -> Entry:
    (found,) = load_corpus(directory=directory, names=[name])
    return found


def refuse(self):
    raise AssertionError("captured again")


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_a_capture_is_found_again(directory, monkeypatch):
    first = entry(directory)
    assert not first.is_captured
    assert first.record is None
    data = first.modules
    monkeypatch.setattr(Entry, "capture", refuse)
    again = entry(directory)
    assert again.is_captured
    assert again.modules == data
    assert again.record is not None
    assert [len(graph) for graph in again.graphs] == list(again.record.nodes)
    assert again.graphs[0].name == f"jit_{NAME}"
    assert files(directory) == [f"modules/{digest_of(data[0])}.hlo", f"programs/{NAME}.json"]


def test_two_captures_have_one_fingerprint(tmp_path):
    one, two = entry(tmp_path / "a"), entry(tmp_path / "b")
    assert one.graphs[0].fingerprint == two.graphs[0].fingerprint


@pytest.mark.parametrize("how", ["truncated", "changed", "missing"])
def test_a_damaged_module_file_is_captured_anew(directory, how):
    before = entry(directory)
    data = before.modules
    (path,) = directory.glob("modules/*.hlo")
    if how == "truncated":
        path.write_bytes(data[0][:-7])
    elif how == "changed":
        path.write_bytes(data[0][:-1] + bytes([data[0][-1] ^ 1]))
    else:
        path.unlink()
    again = entry(directory)
    assert not again.is_captured
    assert again.graphs[0].fingerprint == before.graphs[0].fingerprint
    assert entry(directory).is_captured


def test_a_directory_that_cannot_be_written(directory):
    directory.write_text("a file is in the way")
    with pytest.raises(WorkloadError, match="cannot be written"):
        _ = entry(directory).modules


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '"text"', "{}", '{"format": 1}', "\x00\xff",
        '{"format": 1, "name": "fft_long_convolution", "modules": 3, "nodes": []}',
        '{"format": 99, "name": "fft_long_convolution"}',
    ],
)  # fmt: skip
def test_a_damaged_record_is_captured_anew(directory, text, monkeypatch):
    path = directory / "programs" / f"{NAME}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin1"))
    assert entry(directory).record is None
    assert CorpusCache(directory).records() == []


def test_a_record_cannot_name_files_elsewhere(directory):
    data = entry(directory).modules
    path = directory / "programs" / f"{NAME}.json"
    loaded = json.loads(path.read_text())
    (directory / "outside.hlo").write_bytes(data[0])
    path.write_text(json.dumps({**loaded, "modules": ["../outside"]}))
    assert entry(directory).record is None


@pytest.mark.parametrize("field", ["key", "name"])
def test_a_record_of_something_else_is_captured_anew(directory, field):
    _ = entry(directory).modules
    path = directory / "programs" / f"{NAME}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: "other"}))
    assert not entry(directory).is_captured


def test_the_key_depends_on_the_source_and_on_xla_options(directory, tmp_path, monkeypatch):
    import graphopt.corpus.entries as entries

    before = entry(directory).key
    assert entry(directory).key == before
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=128")
    assert entry(directory).key != before
    monkeypatch.delenv("XLA_FLAGS")
    changed = tmp_path / "changed.py"
    source = Path(
        entries.sys.modules["graphopt.corpus.programs.science.images"].__file__
    ).read_text()
    changed.write_text(source + "\n# changed\n")
    monkeypatch.setattr(
        entries.sys.modules["graphopt.corpus.programs.science.images"], "__file__", str(changed)
    )
    assert entry(directory).key != before
    assert entry(directory, "modular_power").key == entry(directory, "modular_power").key


def test_a_new_capture_removes_the_old_modules(directory):
    cache = CorpusCache(directory)

    def store(data: bytes) -> None:
        digests = (digest_of(data),)
        cache.store(Record("p", "f", "train", "k", digests, (3,), 0, 4, 0.1), [data])

    store(b"old")
    store(b"new")
    record = cache.record("p")
    assert record is not None
    assert cache.modules(record) == [b"new"]
    assert len(files(directory)) == 2


def test_writers_and_readers_at_once_see_whole_captures(directory):
    cache = CorpusCache(directory)
    contents = [bytes([k]) * 20_000 for k in range(4)]
    stop, seen, wrong = threading.Event(), [0], []

    def write(data: bytes) -> None:
        digests = (digest_of(data),)
        for _ in range(60):
            cache.store(Record("p", "f", "train", "k", digests, (3,), 0, 4, 0.1), [data])

    def read() -> None:
        while not stop.is_set():
            record = cache.record("p")
            found = cache.modules(record) if record else None
            if found is not None:
                seen[0] += 1
                wrong.extend(data for data in found if data not in contents)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    write(contents[0])
    record = cache.record("p")
    assert record is not None
    assert cache.modules(record) == [contents[0]]
    assert not wrong
    assert not [name for name in files(directory) if name.endswith(".part")]


def test_two_processes_capture_into_one_directory(directory):
    entries = [entry(directory), entry(directory)]
    done = collect(entries, workers=2)
    assert done.failures == {}
    assert done.captured == [NAME, NAME]
    assert entry(directory).is_captured
    assert collect([entry(directory)]).cached == [NAME]


@pytest.mark.parametrize(
    "fields", [{"modules": (), "nodes": ()}, {"modules": ("a",), "nodes": (1, 2)}]
)
def test_a_record_without_modules_is_refused(fields):
    with pytest.raises(ValueError, match="modules"):
        Record("p", "f", "train", "k", loops=0, argument_bytes=0, seconds=0.0, **fields)


def test_the_default_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("GRAPHOPT_CORPUS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "graphopt" / "corpus"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_directory() == Path.home() / ".cache" / "graphopt" / "corpus"
    monkeypatch.setenv("GRAPHOPT_CORPUS", str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"


# Programs of a user.


def test_a_users_program_is_added_listed_and_loaded(directory, user_module, capsys, monkeypatch):
    spec = f"{user_module}:wave"
    assert main(["capture", spec, "--add", "--split", "validation", "--dir", str(directory)]) == 0
    assert "corpus-users-wave (validation)" in capsys.readouterr().out
    assert main(["corpus", "list", "corpus-users-wave", "--dir", str(directory), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["family"], row["split"], row["workload"]) == ("user", "validation", spec)
    monkeypatch.setattr(Entry, "capture", refuse)
    added = entry(directory, "corpus-users-wave")
    assert len(added.graphs[0]) == row["nodes"]
    fn, args = added.program.build()
    assert fn(*args).shape == (8,)
    names = [e.name for e in load_corpus("validation", directory)]
    assert names[-1] == "corpus-users-wave"


def test_adding_again_replaces(directory, user_module):
    add_to_corpus(f"{user_module}:wave", "train", directory)
    add_to_corpus(f"{user_module}:wave", "held-out", directory)
    assert entry(directory, "corpus-users-wave").split == "held-out"
    assert len(files(directory)) == 2


@pytest.mark.parametrize(
    ("workload", "split", "message"),
    [
        ("corpus_users:wave", "test", "no split 'test'"),
        ("corpus_users:nothing", "train", "has no attribute"),
        ("corpus_users:unbuildable", "train", "no such data set"),
        (NAME, "train", "no program of your own"),
    ],
)
def test_what_cannot_be_added(directory, user_module, workload, split, message):
    with pytest.raises(WorkloadError, match=message):
        add_to_corpus(workload, split, directory)
    assert not directory.exists()


# Programs that fail.


def user_entry(directory: Path, user_module: str, builder: str) -> Entry:
    spec = f"{user_module}:{builder}"
    name = f"corpus-users-{builder}"
    program = Program(name, "user", lambda: (abs, (np.float32(1),)), f"added from {spec}")
    return Entry(program, "train", CorpusCache(directory), spec)


def test_a_program_that_fails_is_reported_and_the_rest_goes_on(directory, user_module):
    builders = ("unbuildable", "dies", "wave")
    told = {}
    done = collect(
        [user_entry(directory, user_module, builder) for builder in builders],
        workers=1,
        tell=told.__setitem__,
    )
    assert done.captured == ["corpus-users-wave"]
    assert "no such data set" in done.failures["corpus-users-unbuildable"]
    assert "SIGKILL" in done.failures["corpus-users-dies"]
    assert told["corpus-users-wave"] == ""
    assert "2 failed" in str(done)
    assert [e.name for e in load_corpus(directory=directory)][-1] == "corpus-users-wave"


def test_a_capture_that_hangs_is_ended(directory, user_module):
    done = collect([user_entry(directory, user_module, "sleeps")], workers=1, timeout_s=6.0)
    assert "no answer within 6 s" in done.failures["corpus-users-sleeps"]


def test_a_failed_capture_is_a_failed_command(user_module, directory, capsys, monkeypatch):
    add_to_corpus(f"{user_module}:wave", "train", directory)
    path = directory / "programs" / "corpus-users-wave.json"
    loaded = {**json.loads(path.read_text()), "workload": f"{user_module}:gone", "key": "old"}
    path.write_text(json.dumps(loaded))
    arguments = ["capture", "corpus-users-wave", "--dir", str(directory), "--workers", "1"]
    assert main(["corpus", *arguments]) == 1
    assert "has no attribute gone" in capsys.readouterr().out


def test_there_must_be_a_worker(directory):
    with pytest.raises(ConfigError, match="workers=0"):
        collect([entry(directory)], workers=0)


def test_unknown_names_and_splits(directory):
    with pytest.raises(WorkloadError, match="no program nonsense"):
        load_corpus(directory=directory, names=["nonsense"])
    with pytest.raises(WorkloadError, match="no split 'test'"):
        load_corpus("test", directory)


def test_the_split_file_is_package_data():
    import tomllib

    pyproject = tomllib.loads((PACKAGE_PARENT / "pyproject.toml").read_text())
    assert "corpus/*.json" in pyproject["tool"]["setuptools"]["package-data"]["graphopt"]
