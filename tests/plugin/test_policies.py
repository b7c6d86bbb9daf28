"""Policies of the user, defects and threads: whatever happens in the hook, the program runs."""

from __future__ import annotations

import functools
import signal
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import becomes, run_python
from support.reports import FELL_BACK, KEPT, REWRITTEN, agrees, as_it_is, only_record
from support.small_programs import STATE, is_native, named, rollout

import graphopt
from graphopt import Decisions, capture_modules
from graphopt.errors import VerificationError
from graphopt.measure import compare_outputs, compile_with
from graphopt.plugin import modules
from graphopt.policy.heuristic import steps as table

pytestmark = pytest.mark.usefixtures("clean_plugin")


# Policies of the user.


def raises(error):
    def policy(graph):
        raise error

    return policy


def outside_the_masks(graph):
    out = graph.default.copy()
    out.fuse[...] = True
    return out


def no_such_unit(graph):
    out = graph.default.copy()
    out.unit[...] = len(graph.units)
    return out


def too_short(graph):
    one = graph.default
    return Decisions(one.fuse[:-1].copy(), one.join[:-1].copy(), one.unit[:-1].copy())


def test_a_defective_step_is_reported_and_the_others_decide(monkeypatch):
    def fails(context):
        raise IndexError("of the step")

    rows = tuple(replace(s, apply=fails) if s.name == "reductions" else s for s in table.TABLE)
    monkeypatch.setattr(table, "TABLE", rows)
    graphopt.install("heuristic", store=False)
    assert agrees(jax.jit(rollout)(STATE))
    record = only_record()
    assert record.outcome is REWRITTEN
    assert record.failed == ("reductions: IndexError: of the step",)
    assert "failed: reductions: IndexError" in str(record)


class SpeechlessError(Exception):
    def __str__(self):
        raise RuntimeError("no message either")


@pytest.mark.parametrize(
    ("policy", "outcome", "reason"),
    [
        (lambda graph: None, KEPT, "no gain expected"),
        (raises(ValueError("bad luck")), FELL_BACK, "policy raised ValueError: bad luck"),
        (raises(SystemExit(3)), FELL_BACK, "policy raised SystemExit: 3"),
        (raises(KeyboardInterrupt()), FELL_BACK, "policy raised KeyboardInterrupt"),
        (raises(SpeechlessError()), FELL_BACK, "policy raised SpeechlessError"),
        (lambda graph: 3, FELL_BACK, "policy returned int"),
        (lambda graph: (graph.default, 1), FELL_BACK, "policy returned tuple"),
        (lambda: None, FELL_BACK, "policy raised TypeError"),
        (too_short, FELL_BACK, "DecisionError"),
        (outside_the_masks, FELL_BACK, "is forbidden by rule"),
        (no_such_unit, FELL_BACK, "does not exist"),
    ],
    ids=[
        "none", "raises", "exits", "interrupts", "raises-speechless", "int", "tuple",
        "takes-no-argument", "too-short", "outside-the-masks", "no-such-unit",
    ],
)  # fmt: skip
def test_whatever_a_policy_does_the_program_runs(policy, outcome, reason):
    graphopt.install(policy)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is outcome
    (text,) = graphopt.report().reasons
    assert text.startswith(f"{outcome}: ")
    assert reason in text


def test_a_slow_policy_is_given_up():
    release = threading.Event()

    def slow(graph):
        release.wait(60)
        return graph.default

    try:
        graphopt.install(slow, policy_timeout_s=0.2)
        assert agrees(named("cart")(STATE))
        assert graphopt.report().reasons == {"fell back: policy took longer than 0.2 s": 1}
    finally:
        release.set()


def test_a_policy_that_never_returns_does_not_keep_the_process():
    script = textwrap.dedent("""
        import time
        import graphopt
        from support.small_programs import STATE, named

        graphopt.install(lambda graph: time.sleep(1e6), policy_timeout_s=0.2)
        named("cart")(STATE)
        print(graphopt.report().reasons)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    assert "policy took longer than 0.2 s" in done.stdout


def test_a_policy_that_still_compiles_at_exit_does_not_abort_the_process():
    script = textwrap.dedent("""
        import graphopt
        from support.small_programs import STATE, named

        def search(graph):
            while True:
                named("candidate")(STATE)

        graphopt.install(search, policy_timeout_s=0.2)
        named("cart")(STATE)
    """)
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_the_report_names_the_users_policy():
    graphopt.install(as_it_is)
    assert graphopt.report().policy == "as_it_is"
    graphopt.install(functools.partial(lambda graph, _: None, _=1))
    assert graphopt.report().policy == "partial"


def test_a_policy_sees_the_graph_and_its_choice_is_applied():
    seen = []

    def native_loop(graph):
        seen.append((graph.name, len(graph)))
        (loop,) = (node for node, op in enumerate(graph.ops) if op.name == "while")
        out = graph.default.copy()
        out.unit[loop] = [unit.name for unit in graph.units].index("native")
        return out

    graphopt.install(native_loop)
    compiled = named("cart").lower(STATE).compile()
    assert agrees(compiled(STATE))
    assert is_native(compiled)
    assert seen == [("jit_cart", only_record().nodes)]


def test_a_policy_that_edits_xlas_decisions_in_place_does_no_harm():
    def careless(graph):
        drawn = graph.masks.sample(np.random.default_rng(0), graph.default, 0.5)
        for field in ("fuse", "join", "unit"):
            getattr(graph.default, field)[...] = getattr(drawn, field)
        return graph.default

    graphopt.install(careless)
    assert agrees(named("cart")(STATE))
    assert graphopt.report().seen == 1


def test_a_policy_may_compile_inside_the_hook():
    @jax.jit
    def score(x):
        return jax.lax.fori_loop(0, 9, lambda i, x: jnp.sin(x) + jnp.cos(x) * i, x)

    def with_jax(graph):
        score(STATE).block_until_ready()
        return graph.default

    graphopt.install(with_jax, policy_timeout_s=60)
    assert agrees(named("cart")(STATE))
    by_name = {record.name: record for record in graphopt.report().records}
    assert by_name["jit_cart"].outcome is REWRITTEN
    assert by_name["jit_score"].outcome is KEPT
    assert by_name["jit_score"].reason == "compiled by a policy"


def test_a_policy_may_capture_inside_the_hook():
    def with_capture(graph):
        (inner,) = graphopt.capture(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x)), STATE)
        return graph.default if len(inner) else None

    graphopt.install(with_capture, policy_timeout_s=60)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is REWRITTEN


def test_a_policy_may_uninstall_inside_the_hook():
    def once(graph):
        graphopt.uninstall()
        return graph.default

    graphopt.install(once)
    assert agrees(named("cart")(STATE))
    assert agrees(named("again")(STATE))
    assert [record.name for record in graphopt.report().records] == ["jit_cart"]


# Failures of graphopt itself.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("a defect"), "internal error RuntimeError: a defect"),
        (MemoryError(), "internal error MemoryError"),
        (
            VerificationError(what="shapes differ", where="a", fix="Report it.", rule="shape"),
            "VerificationError: shapes differ",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_defect_of_the_rewriter_keeps_the_default(monkeypatch, error, reason):
    def broken(graph, decisions):
        raise error

    monkeypatch.setattr(modules, "rewrite", broken)
    graphopt.install()
    assert agrees(named("cart")(STATE))
    (text,) = graphopt.report().reasons
    assert text.startswith(f"fell back: {reason}")


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x00" * 64])
def test_bytes_that_are_no_module_are_recorded(data):
    graphopt.install()
    assert modules.handle(data) is None
    record = only_record()
    assert record.outcome is FELL_BACK
    assert record.name == "unreadable module"
    assert "ModuleFormatError" in record.reason


def test_modules_that_arrive_after_uninstall_are_passed_on():
    assert modules.handle(b"garbage") is None
    assert graphopt.report().seen == 0


# Threads.


@pytest.mark.parametrize("policy", ["heuristic", as_it_is], ids=["built-in", "of-the-user"])
def test_several_threads_compile_at_once(policy):
    barrier = threading.Barrier(4)

    def compile_and_run(number):
        run = named(f"thread_{number}")
        barrier.wait(60)
        return run(STATE)

    graphopt.install(policy)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(compile_and_run, range(4)))
    assert all(agrees(result) for result in results)
    records = graphopt.report().records
    assert sorted(record.name for record in records) == [f"jit_thread_{i}" for i in range(4)]
    assert {record.outcome for record in records} == {REWRITTEN}


def test_measuring_in_one_thread_leaves_another_threads_program_alone():
    (own,) = capture_modules(rollout, STATE)
    holding, release = threading.Event(), threading.Event()

    def candidate(data):
        holding.set()
        release.wait(60)
        return own

    def halved(x):
        return rollout(0.5 * x)

    expected = compile_with(halved, (STATE,))()
    graphopt.install()
    with ThreadPoolExecutor(2) as pool:
        measured = pool.submit(lambda: compile_with(rollout, (STATE,), candidate))
        assert holding.wait(60)
        other = pool.submit(lambda: named("other", halved)(STATE))
        becomes(other.done, within_s=3)  # or it waits until the first is done
        release.set()
        assert compare_outputs(expected, other.result(60)).equal
        assert len(measured.result(60).modules) == 1
    assert [record.name for record in graphopt.report().records] == ["jit_other"]


def test_an_interrupt_while_it_is_decided_reaches_the_program(monkeypatch):
    in_main = []

    def interrupted(graph, decisions):
        monkeypatch.undo()
        in_main.append(threading.current_thread() is threading.main_thread())
        signal.raise_signal(signal.SIGINT)
        return modules.rewrite(graph, decisions)  # reached on other threads, which get no interrupt

    monkeypatch.setattr(modules, "rewrite", interrupted)
    graphopt.install("heuristic")
    with pytest.raises(KeyboardInterrupt):
        named("cart")(STATE)
        time.sleep(30.0)
    # XLA calls the hook on the thread that compiles, and before jax 0.11 on one of its own.
    assert len(in_main) == 1
    if in_main[0]:
        assert graphopt.report().records[-1].reason == "interrupted"


@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        ("SIGINT", "signal.default_int_handler", "KeyboardInterrupt"),
        ("SIGALRM", "out_of_time", "Late"),
        ("SIGTERM", "lambda *_: sys.exit(3)", "SystemExit"),
    ],
)
def test_what_a_signal_raises_during_a_compile_reaches_the_program(number, handler, error):
    # Most come while XLA compiles, before or behind the hook; Python sees them when it is asked next.
    script = f"""
        import signal, sys, threading, time
        import jax, jax.numpy as jnp, numpy as np
        import graphopt

        def unrolled(x, number):
            for factor in range(8):
                x = jnp.sin(x @ x) + factor + number
            return x

        class Late(BaseException):
            pass

        def out_of_time(number, frame):
            raise Late

        graphopt.install("heuristic", store=False)
        signal.signal(signal.{number}, {handler})
        main = threading.main_thread().ident
        x = np.eye(8, dtype=np.float32)
        jax.jit(unrolled, static_argnums=1)(x, 0)  # loads what jax loads at the first compile
        seen = []
        for number in range(1, 25):
            compile = jax.jit(unrolled, static_argnums=1)
            send = threading.Timer(0.005 * number, signal.pthread_kill, (main, signal.{number}))
            try:
                send.start()
                compile(x, number)
                time.sleep(30.0)
            except BaseException as error:
                seen.append(type(error).__name__)
        print(sorted(set(seen)), len(seen))
    """
    assert run_python("-c", textwrap.dedent(script)).stdout.strip() == f"['{error}'] 24"
