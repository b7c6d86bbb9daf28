"""The cache of answers: keys, several processes, damage, size."""

from __future__ import annotations

import random
import sqlite3
import threading

import pytest
from support.processes import run_python

from graphopt.store.answers import Answer, Answers, digest_of


@pytest.fixture
def answers(tmp_path):
    made = Answers(tmp_path / "folder" / "answers.sqlite")
    yield made
    made.close()


def test_keys_tell_modules_and_what_they_depend_on_apart():
    found = {digest_of(d, m) for m in (b"", b"a", b"ab") for d in ("", "a", "b" * 1000)}
    assert len(found) == 9 and {len(digest) for digest in found} == {32}
    assert digest_of("x", b"ab", b"c") == digest_of("x", memoryview(b"abc"))


def test_answers_come_back(answers):
    answers.put(b"rewritten", Answer("{}", b"module" * 1000))
    answers.put(b"kept", Answer('{"a": 1}', None))
    assert answers.get(b"rewritten") == Answer("{}", b"module" * 1000)
    assert answers.get(b"kept") == Answer('{"a": 1}', None)
    assert answers.get(b"unknown") is None


def test_an_answer_that_is_being_written_is_waited_for(answers):
    started, go_on = threading.Event(), threading.Event()

    def make():
        started.set()
        assert go_on.wait(10)
        return {b"a": Answer("{}", b"module"), b"b": Answer("{}", None, b"a")}

    answers.put_later(make, b"a", b"b")
    assert started.wait(10)
    threading.Timer(0.05, go_on.set).start()
    assert answers.get(b"a") == Answer("{}", b"module")
    assert answers.get(b"b") == Answer("{}", None, b"a")


def test_what_is_put_later_does_not_undo_what_was_put_after_it(answers):
    go_on = threading.Event()

    def make():
        assert go_on.wait(10)
        return {b"a": Answer("{}", b"rewritten")}

    answers.put_later(make, b"a")
    threading.Timer(0.05, go_on.set).start()
    answers.put(b"a", Answer("refused", None))
    assert answers.get(b"a") == Answer("refused", None)


def test_an_answer_that_cannot_be_made_is_not_kept(answers, caplog):
    answers.put_later(lambda: {}[b"missing"], b"a")
    assert answers.get(b"a") is None
    answers.put(b"a", Answer("{}", None))
    assert answers.get(b"a") == Answer("{}", None)
    assert "not kept" in caplog.text


def test_a_program_that_ends_at_once_writes_its_answer_first(answers):
    script = (
        "import sys, time; from graphopt.store.answers import Answer, Answers\n"
        "make = lambda: time.sleep(0.2) or {b'key': Answer('{}', b'module')}\n"
        "Answers(sys.argv[1]).put_later(make, b'key')"
    )
    done = run_python("-c", script, str(answers.path))
    assert done.returncode == 0, done.stderr
    assert answers.get(b"key") == Answer("{}", b"module")


def test_another_process_sees_them(answers):
    answers.put(b"key", Answer("{}", b"module"))
    script = (
        "import sys; from graphopt.store.answers import Answer, Answers\n"
        "a = Answers(sys.argv[1]); print(a.get(b'key').data); a.put(b'theirs', Answer('{}', None))"
    )
    done = run_python("-c", script, str(answers.path))
    assert done.stdout.strip() == "b'module'", done.stderr
    assert answers.get(b"theirs") == Answer("{}", None)


def test_old_answers_make_room(tmp_path):
    answers = Answers(tmp_path / "a.sqlite", most_bytes=400_000)
    kept = bytes(range(256)) * 40
    for number in range(300):
        noise = random.Random(number).randbytes(10_000)
        answers.put(b"%d" % number, Answer("{}", noise + kept))
    found = [number for number in range(300) if answers.get(b"%d" % number) is not None]
    assert found and found[-1] == 299 and found[0] > 100
    assert answers.path.stat().st_size < 1_200_000
    answers.close()


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_damaged_file_is_made_anew(tmp_path, content):
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    answers = Answers(path)
    answers.put(b"key", Answer("{}", b"module"))
    assert answers.get(b"key") == Answer("{}", b"module")
    answers.close()


def test_a_place_that_cannot_be_written_holds_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    answers = Answers(tmp_path / "file" / "a.sqlite")
    answers.put(b"key", Answer("{}", b"module"))
    assert answers.get(b"key") is None


def test_a_file_of_another_version_is_emptied(tmp_path):
    answers = Answers(tmp_path / "a.sqlite")
    answers.put(b"key", Answer("{}", None))
    answers.close()
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    assert answers.get(b"key") is None
    answers.put(b"key", Answer("{}", None))
    assert answers.get(b"key") is not None
    answers.close()


def test_a_writer_that_waits_too_long_gives_up(answers):
    answers.put(b"key", Answer("{}", None))
    other = sqlite3.connect(answers.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers.put(b"more", Answer("{}", None))
    other.execute("ROLLBACK")
    other.close()
    assert answers.get(b"more") is None and answers.get(b"key") is not None
