"""Measuring in a child process: whatever the child does, it is named, recorded, and the run goes on."""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, captured, normal
from support.processes import becomes, environment, is_alive

from benchmarks.faults import (
    FAULTS,
    child_processes,
    distinct_decisions,
    fake_worker,
    inject_faults,
)
from graphopt.errors import MeasureError
from graphopt.learn.search import portfolio
from graphopt.measure.children import worker
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.measure.children.runner import Runner
from graphopt.measure.children.session import ChaoticResult, WrongResult
from graphopt.measure.compiling.functions import compile_lowered
from graphopt.store import Store, decode_decisions, encode_decisions
from graphopt.store.kernels import all_kernels
from graphopt.store.winners import evaluations, quarantined

GOOD = len(FAULTS)
"""A budget at which a fake worker answers well."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


@functools.cache
def module(name: str = "knapsack") -> bytes:
    return captured(name).data


def fake(store: Store | None = None, **options) -> Runner:
    return Runner(module(), None, store, worker=fake_worker(), **{"timeout_s": 0.5, **options})


# Failures.


def test_every_failure_is_named_recorded_and_survived(tmp_path):
    report = inject_faults(module(), 2 * len(FAULTS), tmp_path / "store.sqlite")
    assert report.clean, str(report)
    assert (report.trials, report.good) == (2 * len(FAULTS), 2 * len(FAULTS))


def test_the_reason_says_what_happened(store):
    with fake(store) as runner:
        vectors = distinct_decisions(runner.graph, len(FAULTS))
        found = {
            fault.name: runner.measure(vectors[i], budget_s=i).detail
            for i, fault in enumerate(FAULTS)
        }
    assert "SIGSEGV" in found["segmentation fault"]
    assert "SIGABRT" in found["abort"]
    assert "no answer within 0.5 s" in found["hang"]
    assert "exit status 3" in found["exit"]
    assert "RuntimeError: INTERNAL: something" in found["exception"]
    assert "Segmentation fault (core dumped)" in found["text"]
    reasons = set(quarantined(store, runner.graph.fingerprint).values())
    assert any(reason.startswith("abort: ") and "SIGSEGV" in reason for reason in reasons)


def test_quarantined_decisions_are_never_tried_again(store):
    with fake(store) as runner:
        decisions = distinct_decisions(runner.graph, 1)[0]
        assert runner.measure(decisions, budget_s=0).status == "abort"
        assert (runner.requests, runner.restarts) == (1, 1)
        again = runner.measure(decisions, budget_s=GOOD)
        assert again.status == "quarantined" and not again.ok
        assert runner.profile(decisions) == []
        assert runner.requests == 1
    with fake(store) as another:
        assert another.measure(decisions, budget_s=GOOD).status == "quarantined"
        assert another.requests == 0
    with fake(None) as without:
        assert without.measure(decisions, budget_s=GOOD).ok


def test_every_result_is_recorded_at_once(store):
    with fake(store) as runner:
        good, bad = distinct_decisions(runner.graph, 2)
        runner.measure(good, budget_s=GOOD, method="one")
        runner.measure(bad, budget_s=0, method="two")
        fingerprint = runner.graph.fingerprint
        rows = Store(store.path).rows(
            "SELECT decisions, ratio, status, method FROM evaluations ORDER BY method"
        )
        assert rows == [
            (encode_decisions(runner.graph, good), 1.5, "ok", "one"),
            (encode_decisions(runner.graph, bad), None, "abort", "two"),
        ]
        assert evaluations(store, fingerprint) == [(rows[0][0], 1.5)]


@pytest.mark.parametrize("factor", [jax.lax.linalg.cholesky, jax.lax.linalg.lu])
def test_modules_that_call_lapack_run_in_a_process_that_has_lowered_none(factor, store):
    spread = normal(40, 40)
    program = capture(lambda a: jax.tree.leaves(factor(a @ a.T + 40.0 * jnp.eye(40)))[0], spread)
    assert b"lapack_" in program.data
    with Runner(program.data, [np.asarray(a) for a in program.args], store) as runner:
        runner.start()
        assert runner.measure(program.graph.default, budget_s=0.02).ok


def test_ratios_to_others_than_the_default_are_not_recorded(store):
    with fake(store) as runner:
        one, two = distinct_decisions(runner.graph, 2)
        assert runner.measure(one, against=two, budget_s=GOOD).ratio == 1.5
        assert runner.measure(one, options={"a": "b"}, budget_s=GOOD).ok
    assert evaluations(store, runner.graph.fingerprint) == []


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit('no backend')",
        "import os; os.abort()",
        "print('hello')",
        "print('[]')",
        'print(\'{"status": "cannot measure", "detail": "no backend"}\')',
        'print(\'{"status": "cannot measure"}\')',
        'print(\'{"detail": "no status"}\')',
    ],
)
def test_a_worker_that_cannot_start_is_a_measure_error(code, store):
    before = set(child_processes())
    with Runner(module(), None, store, worker=("-c", code)) as runner:
        for _ in range(2):
            with pytest.raises(MeasureError, match="cannot be measured apart from its program"):
                runner.measure(runner.graph.default)
    assert set(child_processes()) == before
    assert quarantined(store, runner.graph.fingerprint) == {}


def test_a_worker_that_speaks_without_being_asked():
    code = 'import sys\nprint(\'{"status": "ok"}\\nmore\', flush=True)\nsys.stdin.read()'
    with Runner(module(), None, worker=("-c", code)) as runner:
        result = runner.measure(distinct_decisions(runner.graph, 1)[0])
        assert result.status == "garbage"
        assert "without being asked" in result.detail


def test_files_and_processes_are_removed():
    before = set(child_processes())
    runner = fake()
    folder = runner._folder
    assert (folder / "module.pb").read_bytes() == module()
    runner.start()
    assert len(set(child_processes()) - before) == 1
    runner.close()
    assert set(child_processes()) == before
    assert not folder.exists()


def test_a_worker_ends_with_a_runner_that_nobody_closed():
    before = set(child_processes())
    runner = fake()
    runner.start()
    assert len(set(child_processes()) - before) == 1
    del runner
    gc.collect()
    assert set(child_processes()) == before


# The protocol's lower half.


def child(code: str) -> Child:
    return Child(["-c", code], "a child")


def test_a_child_that_writes_without_end_is_stopped_by_the_clock():
    start = time.monotonic()
    with (
        child("import os\nwhile True: os.write(1, b'x' * 100)") as endless,
        pytest.raises(ChildFailure) as caught,
    ):
        endless.ask("", 1.0)
    # What it writes before it is asked counts as garbage, later as no answer.
    assert caught.value.kind in ("hang", "garbage")
    assert time.monotonic() - start < 30
    assert not is_alive(endless._process.pid)


def test_a_line_without_end_is_not_kept(monkeypatch):
    monkeypatch.setattr("graphopt.measure.children.child.MAX_LINE", 1 << 20)
    with (
        child("import os\nwhile True: os.write(1, b'x' * 65536)") as endless,
        pytest.raises(ChildFailure, match="more than 1 MiB") as caught,
    ):
        endless.ask("", 100.0)
    assert caught.value.kind == "garbage"


def test_a_child_that_does_not_read_is_stopped_by_the_clock():
    with child("import time; time.sleep(1e6)") as deaf, pytest.raises(ChildFailure) as caught:
        deaf.ask("x" * (8 << 20), 1.0)
    assert caught.value.kind == "hang"
    assert "read no request" in caught.value.what


def test_long_requests_and_answers():
    text = "".join(chr(97 + i % 26) for i in range(3 << 20))
    with child(
        "import sys\nfor line in sys.stdin: sys.stdout.write(line[::-1].strip() + '\\n'); sys.stdout.flush()"
    ) as mirror:
        assert mirror.ask(text, 60.0) == text[::-1]
        assert mirror.ask("abc", 60.0) == "cba"


ORPHANED = """
import sys
from graphopt.measure.children.child import Child
child = Child(["-c", sys.argv[1]], "orphan")
print(child._process.pid, child.greeting(60), flush=True)
child.greeting(600)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import time; print(1, flush=True); time.sleep(1e6)",
        "print(1, flush=True)\nwhile True: pass",
    ],
    ids=["waiting", "busy"],
)
def test_a_child_ends_with_a_killed_parent(code):
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHANED, code], env=environment(), stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline().split()[0])
    assert is_alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert becomes(lambda: not is_alive(pid), within_s=2.0)


# The real worker.


@functools.cache
def recorded(name: str):
    from graphopt.learn.tune.subject import make_subject

    program = captured(name)
    ((data, inputs),) = make_subject(program.fn, program.args).modules
    return data, inputs


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A runner with a real worker, and its store."""
    store = Store(tmp_path_factory.mktemp("real") / "store.sqlite")
    with Runner(*recorded("momentum_train"), store) as runner:
        yield runner, store


def test_the_default_against_itself(real):
    runner, _ = real
    result = runner.measure(runner.graph.default, budget_s=0.2)
    assert result.ok
    assert result.low <= result.ratio <= result.high
    assert result.error == 0.0
    assert result.seconds > 0 and result.rival_s > 0 and result.default_compile_s > 0
    assert result.pairs >= 5


def test_candidates_are_compiled_checked_and_timed(real):
    runner, store = real
    starts = [s.decisions for s in portfolio(runner.graph)][1:4]
    for decisions in starts:
        result = runner.measure(decisions, budget_s=0.1, method="start")
        assert result.ok, result.detail
        assert result.compile_s > 0 and result.clusters > 0
        assert 0 <= result.error < 1e-3
    assert runner.measure(starts[0], against=starts[1], budget_s=0.1).ok
    texts = {text for text, _ in evaluations(store, runner.graph.fingerprint)}
    assert {encode_decisions(runner.graph, d) for d in starts} <= texts
    assert runner.restarts == 0


def test_compile_options_are_measured(real):
    runner, _ = real
    options = {"xla_cpu_prefer_vector_width": "128"}
    assert runner.measure(runner.graph.default, options=options, budget_s=0.1).ok
    refused = runner.measure(runner.graph.default, options={"nonsense": "1"}, budget_s=0.1)
    assert refused.status == "compile or run error"
    assert "nonsense" in refused.detail
    assert runner.measure(runner.graph.default, budget_s=0.1).ok, "the run goes on"


def test_a_profile_fills_the_kernel_bank(real):
    runner, store = real
    found = runner.profile(runner.graph.default)
    assert found
    bank = {kernel.key: kernel for kernel in all_kernels(store)}
    for kernel, item, executions in found:
        assert 0 <= item < len(runner.graph)
        assert executions > 0 and kernel.ns >= 1
        assert kernel.key in bank


def test_illegal_requests_are_answers_not_failures(real):
    runner, _ = real
    runner.start()
    answer = runner._ask(
        {"op": "measure", "decisions": '{"space": 0}', "budget_s": 0.1, "against": "{}"}
    )
    assert answer["status"] == "illegal"
    assert "decision space 0" in answer["detail"]
    assert runner.restarts == 0


class BrokenSession:
    """Raises what a session may raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def measure(self, *_):
        raise self.error

    profile = measure


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WrongResult("off by 0.5"), "wrong result"),
        (ChaoticResult("off by 0.9"), "chaotic"),
        (MeasureError(what="w", where="x", fix="y"), "illegal"),
        (MemoryError(), "memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."), "memory"),
        (RuntimeError("INTERNAL: codegen"), "compile or run error"),
        (KeyError("x"), "compile or run error"),
    ],
)
def test_a_failure_in_the_worker_becomes_a_status(error, status):
    for request in (
        {"op": "measure", "decisions": "{}", "budget_s": 1},
        {"op": "profile", "decisions": "{}", "runs": 1},
    ):
        answer = worker.serve(BrokenSession(error), request)
        assert answer["status"] == status
        assert isinstance(answer["detail"], str)
        json.dumps(answer)


def compiled_module(fn, *args) -> bytes:
    return max(compile_lowered(lambda: jax.jit(fn).lower(*args), args).modules, key=len)


def calls_back(x):
    y = jnp.sin(x) * jnp.cos(x) + jnp.tanh(x) * 2
    return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), y)


def test_a_module_with_a_host_callback_cannot_be_measured(store):
    data = compiled_module(calls_back, normal(32))
    with pytest.raises(MeasureError) as caught, Runner(data, [normal(32)], store) as runner:
        runner.start()
    assert "callback" in str(caught.value)
    assert quarantined(store, runner.graph.fingerprint) == {}


def test_a_default_that_needs_too_much_memory_cannot_be_measured(store):
    def large(x):
        return jnp.sum(jnp.cumsum(jnp.sin(jnp.arange(1 << 31, dtype=jnp.float32) * x)))

    data = compiled_module(large, np.float32(2))
    with (
        pytest.raises(MeasureError, match="cannot be measured"),
        Runner(data, [np.asarray(np.float32(2))], store, memory_gb=4.0) as runner,
    ):
        runner.start()


def test_a_decoded_candidate_is_the_one_that_was_sent(real):
    runner, _ = real
    for decisions in distinct_decisions(runner.graph, 5):
        text = encode_decisions(runner.graph, decisions)
        assert decode_decisions(runner.graph, text).same_as(decisions)


def test_workers_answer_on_a_channel_of_their_own():
    """What a program prints is no answer."""
    code = (
        "import runpy, sys\nfrom graphopt.measure.children import worker\n"
        "before = worker.limit_memory\n"
        'def noisy(gigabytes):\n    print(\'{"status": "ok"}\', flush=True)\n    before(gigabytes)\n'
        "worker.limit_memory = noisy\nsys.exit(worker.main(sys.argv[1:]))\n"
    )
    with Runner(*recorded("momentum_train"), worker=("-c", code)) as runner:
        runner.start()
        assert runner._run_s > 0


def test_the_environment_is_passed_on(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_thunk_runtime=true")
    code = "import json, os; print(json.dumps({'status': 'x', 'detail': os.environ['XLA_FLAGS']}))"
    with (
        Runner(module(), None, worker=("-c", code)) as runner,
        pytest.raises(MeasureError, match="xla_cpu_use_thunk_runtime=true"),
    ):
        runner.start()
    assert os.environ["XLA_FLAGS"].endswith("true")
