"""``graphopt fuzz``: random legal decisions hold, and programs that go wrong are caught and named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest
from support import misbehaving
from support.captures import captured
from support.processes import becomes, environment, is_alive

from graphopt.errors import WorkloadError
from graphopt.evaluate.fuzzing import worker
from graphopt.evaluate.fuzzing.decisions import STATUSES, FuzzReport, Trial, fuzz
from graphopt.evaluate.fuzzing.progress import run_fuzz
from graphopt.measure.children.child import Child, ChildFailure

PROGRAMS = (
    "fibonacci", "life_sweep", "ring_buffer", "unrolled_scan", "collatz", "knapsack",
    "stack_machine", "scan_grad", "momentum_train", "attention_grad", "prefixes", "gather_scatter",
)  # fmt: skip

FIRST_SEED = 3  # from here on five seeds cover five ways to draw, native regions and joins included


@pytest.fixture
def folder(tmp_path: Path, monkeypatch):
    """Where misbehaving programs leave notes; their processes are ended afterwards."""
    monkeypatch.setenv("MISBEHAVING", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    yield tmp_path
    for note in tmp_path.iterdir():
        if is_alive(pid := int(note.read_text())):
            os.kill(pid, signal.SIGKILL)


# Random legal decisions.


@pytest.mark.slow
def test_random_legal_decisions_are_sound():
    seen: list[Trial] = []
    report = fuzz("fuzz", PROGRAMS, trials=61, seed=FIRST_SEED, progress=seen.append)
    assert report.failures == [], str(report)
    assert sorted(map(str, seen)) == sorted(map(str, report.trials))
    seeds = {name: [t.seed for t in report.trials if t.program == name] for name in PROGRAMS}
    assert seeds.pop("fibonacci") == [*range(FIRST_SEED, FIRST_SEED + 6)]
    assert set(map(tuple, seeds.values())) == {tuple(range(FIRST_SEED, FIRST_SEED + 5))}
    assert "61 trials on 12 programs" in str(report)
    assert "61 ok, 0 wrong" in str(report)


@pytest.mark.parametrize("name", ["knapsack", "momentum_train", "layernorm"])
def test_a_seed_draws_the_same_legal_decisions_again(name):
    graph = captured(name).graph
    drawn = [worker.draw(graph, seed) for seed in range(16)]
    for seed, decisions in enumerate(drawn):
        graph.masks.check(decisions)
        assert decisions.same_as(worker.draw(graph, seed))
    assert sum(not decisions.same_as(graph.default) for decisions in drawn) > 8


# What goes wrong.

EXPECTED = {
    "aborts": "abort",
    "hangs": "hang",
    "raises": "compile error",
    "wrong": "wrong",
    "fails-to-run": "run error",
    "noisy": "ok",
}
"""Status of the first trial of each misbehaving program."""


def test_every_kind_of_failure_is_named_and_the_run_goes_on(folder):
    report = fuzz("support.misbehaving:ONCE", trials=2 * len(EXPECTED), timeout_s=20.0)
    by_program = {name: [t for t in report.trials if t.program == name] for name in EXPECTED}
    found = {name: [t.status for t in trials] for name, trials in by_program.items()}
    assert found == {name: [status, "ok"] for name, status in EXPECTED.items()}
    details = {name: trials[0].detail for name, trials in by_program.items()}
    assert "SIGABRT" in details["aborts"]
    assert "no answer within 20 s" in details["hangs"]
    assert "ValueError: cannot be traced" in details["raises"]
    assert "CpuCallback error" in details["fails-to-run"]
    assert float(details["wrong"].rpartition(" ")[2]) > 1e-3
    assert by_program["wrong"][0].relative > 1e-3
    failures = [t.program for t in report.failures]
    assert sorted(failures) == sorted(set(EXPECTED) - {"noisy"})
    assert "  wrong seed 0: wrong: " in str(report)
    pid = int((folder / "hangs").read_text())
    assert becomes(lambda: not is_alive(pid), within_s=10), "the hanging child was left behind"


def test_programs_that_cannot_be_built_do_not_stop_the_others(folder):
    report = fuzz("support.misbehaving:NEVER_BUILT", trials=3)
    found = {trial.program: trial for trial in report.trials}
    assert {name: trial.status for name, trial in found.items()} == {
        "unbuildable": "exit",
        "exits": "exit",
        "fine": "ok",
    }
    assert "OSError: no such data set" in found["unbuildable"].detail
    assert "exit status 5" in found["exits"].detail


def test_unknown_programs_and_sets():
    with pytest.raises(WorkloadError, match=r"no program.*nonsense.*Choose from fibonacci"):
        fuzz("fuzz", ["knapsack", "nonsense"])
    with pytest.raises(WorkloadError):
        fuzz("no_such_set")
    with pytest.raises(WorkloadError):
        fuzz("support.misbehaving:EMPTY")


def test_no_trials_are_no_failures():
    report = fuzz("fuzz", ["fibonacci"], trials=0)
    assert report.trials == report.failures == []
    assert str(report).startswith("0 trials on 0 programs")


def test_the_report_counts_every_status():
    trials = [Trial("p", seed, status, "why") for seed, status in enumerate(STATUSES)]
    text = str(FuzzReport(trials, 1.0))
    for trial in trials:
        assert f"1 {trial.status}" in text
        line = f"  p seed {trial.seed}: {trial.status}: why"
        assert (line in text) == (trial.status != "ok")


def test_the_progress_display_prints_failures_and_the_report(folder, capsys):
    report = run_fuzz("support.misbehaving:NEVER_BUILT", ["exits"], 1, 0, 60.0, 1)
    output = capsys.readouterr().out
    assert Counter(trial.status for trial in report.trials) == {"exit": 1}
    assert "exits seed 0: exit" in output
    # Not wrapped where it goes to a file: a line of the report is a line.
    assert all(line in output.splitlines() for line in str(report).splitlines())


@pytest.mark.slow
def test_an_interrupt_ends_a_run_and_its_children(folder):
    # Two trials of each program would hang for ten minutes.
    command = [
        "fuzz",
        "--workloads",
        "support.misbehaving:ONCE",
        "--graphs",
        "hangs",
        "--trials",
        "2",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "graphopt", *command, "--timeout-s", "300"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        note = folder / "hangs"
        assert becomes(lambda: note.exists() and note.read_text() != "", within_s=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert becomes(lambda: not is_alive(int(note.read_text())), within_s=10)
    except subprocess.TimeoutExpired:
        pytest.fail("an interrupted run went on")
    finally:
        process.kill()
        process.wait()


# The child process.


def child(code: str, *arguments: str) -> Child:
    return Child(["-c", textwrap.dedent(code), *arguments], "example")


ECHO = """
    import sys
    for line in sys.stdin:
        print(line.strip()[::-1], flush=True)
"""


def test_a_child_answers_line_by_line():
    with child(ECHO) as echo:
        assert echo.ask("one", 60) == "eno"
        assert echo.ask("two", 60) == "owt"
        long = "x" * 300_000
        assert echo.ask(long + "y", 60) == "y" + long


def test_what_a_child_writes_without_being_asked_is_garbage():
    code = "import sys; sys.stdout.write('a\\nb\\nc'); sys.stdout.flush(); sys.stdin.read()"
    with child(code) as busy:
        assert busy.ask("", 60) == "a"
        with pytest.raises(ChildFailure) as caught:
            busy.ask("", 60)
    assert caught.value.kind == "garbage"


WITH_GRANDCHILD = """
    import os, subprocess, sys
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])
    for line in sys.stdin:
        print(os.getpid(), other.pid, flush=True)
"""


def test_closing_a_child_ends_all_it_started():
    with child(WITH_GRANDCHILD) as parent:
        pids = [int(pid) for pid in parent.ask("", 60).split()]
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
    for pid in pids:
        assert becomes(lambda pid=pid: not is_alive(pid), within_s=10)
    parent.close()


SLEEPS_AFTER_HELLO = """
    import os, sys, time
    sys.stdin.readline()
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    print("half a line", end="", flush=True)
    print("last words", file=sys.stderr, flush=True)
    time.sleep(1e6)
"""


def test_a_hanging_child_is_killed():
    sleeper = child(SLEEPS_AFTER_HELLO)
    pid = int(sleeper.ask("", 60))
    with pytest.raises(ChildFailure, match=r"no answer within 0\.5 s \(example\)") as caught:
        sleeper.ask("", 0.5)
    assert caught.value.kind == "hang"
    assert becomes(lambda: not is_alive(pid), within_s=10)


def test_a_child_that_closes_its_output_and_stays_is_a_hang():
    code = "import os, time; input(); os.close(1); time.sleep(4)"
    with child(code) as mute, pytest.raises(ChildFailure) as caught:
        mute.ask("", 1)
    assert caught.value.kind == "hang"


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        ("os.abort()", "abort", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "abort", "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", "abort", "died"),
        ("sys.exit(4)", "exit", "exit status 4"),
        ("sys.exit()", "exit", "exit status 0"),
        ("1 / 0", "exit", "exit status 1"),
    ],
    ids=["abort", "fault", "unnamed-signal", "exit", "end", "error"],
)
def test_a_child_that_dies_leaves_its_last_words(code, kind, what):
    prelude = "import faulthandler, os, signal, sys; faulthandler.disable(); input()\n"
    words = "print('last words', file=sys.stderr, flush=True)\n"
    dying = child(prelude + words + code)
    with pytest.raises(ChildFailure, match=what) as caught:
        dying.ask("", 60)
    assert caught.value.kind == kind
    assert "last words" in caught.value.detail
    dying.close()


def test_a_child_that_died_before_it_was_asked():
    short = child("print('gone', flush=True)")
    assert short.ask("", 60) == "gone"
    with pytest.raises(ChildFailure, match="exit status 0"):
        for _ in range(100):  # until the pipe breaks
            short.ask("more", 60)


def test_a_child_does_not_outlive_its_parent(tmp_path):
    """Killed without a chance to clean up, while one child waits and one works."""
    note = tmp_path / "pids"
    parent = textwrap.dedent("""
        import sys
        from graphopt.measure.children.child import Child

        echo = "import os, sys\\nfor line in sys.stdin: print(os.getpid(), flush=True)"
        busy = "import os, sys, time\\nprint(os.getpid(), flush=True)\\ntime.sleep(1e6)"
        children = [Child(["-c", code], "x") for code in (echo, busy)]
        pids = " ".join(child.ask("", 60) for child in children)
        with open(sys.argv[1], "w") as file:
            file.write(pids + "\\n")
        sys.stdin.read()
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", parent, str(note)], env=environment(), stdin=subprocess.PIPE
    )
    pids: list[int] = []
    try:
        assert becomes(lambda: note.exists() and note.read_text().endswith("\n"), within_s=60)
        pids = [int(pid) for pid in note.read_text().split()]
        process.kill()
        process.wait()
        waiting, working = (becomes(lambda p=p: not is_alive(p), within_s=5) for p in pids)
        assert waiting, "the idle child is still there"
        assert working, "the working child is still there"
    finally:
        process.kill()
        process.communicate()
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_several_children_at_once():
    results: dict[int, str] = {}

    def talk(number: int) -> None:
        with child(ECHO) as echo:
            results[number] = echo.ask(f"{number}.", 60)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: f".{number}" for number in range(4)}


def test_the_misbehaving_programs_are_the_ones_tested():
    assert set(misbehaving.ONCE) == set(EXPECTED)
