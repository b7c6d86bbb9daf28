"""`graphopt.tune` from end to end: found, confirmed, stored, used, replayed, repeated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.forks import run_forked
from support.processes import becomes, environment, is_alive
from support.small_programs import STATE, chain, is_native, named

import graphopt
from graphopt.errors import WorkloadError
from graphopt.hlo import build_graph, rewrite
from graphopt.learn.tune import Event, replay, tune
from graphopt.learn.tune.confirm import Runs, _yardstick, confirm
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import compile_with
from graphopt.measure.comparing.yardstick import Judgement, host_leaves, program_yardstick
from graphopt.store import Store, decode_decisions
from graphopt.store.winners import KEPT, all_winners, get_winner, quarantined

pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(result, store, events) of a program whose loop gains several times by becoming native."""
    store = Store(tmp_path_factory.mktemp("tuned") / "store.sqlite")
    events: list[Event] = []
    fn = named("cart", chain)
    fn(STATE)  # a function that has run already is compiled anew
    result = tune(fn, STATE, budget_s=90.0, evaluations=8, store=store, listener=events.append)
    return result, store, events


# A program that gains.


def test_a_gain_is_found_confirmed_and_stored(tuned):
    result, store, _ = tuned
    assert result.adopted and result.verified
    assert result.times.low > 1.0
    assert result.speedup == result.times.speedup
    assert result.tuned_s == result.times.candidate_s < result.baseline_s
    assert result.max_rel_err < 1e-3
    (module,) = result.modules
    assert 1 <= module.evaluations <= 8 and module.note == ""
    assert module.changes and module.decisions != KEPT
    (winner,) = all_winners(store)
    assert (winner.fingerprint, winner.decisions) == (module.fingerprint, module.decisions)
    assert (winner.speedup, winner.low, winner.high) == (
        result.speedup, result.times.low, result.times.high,
    )  # fmt: skip
    assert (winner.program, winner.verified, winner.origin) == ("cart", True, "tuned here")


def test_the_result_reads_well_and_is_plain_data(tuned):
    result, _, _ = tuned
    text = str(result)
    assert text.startswith("cart: ") and f"{result.speedup:.2f}x" in text
    assert f"{result.evaluations} candidates" in text
    data = json.loads(json.dumps(result.to_json()))
    assert data["speedup"] == result.speedup
    assert data["modules"][0]["decisions"] == result.modules[0].decisions


def test_the_result_says_which_change_makes_the_difference(tuned):
    result, _, _ = tuned
    (module,) = result.modules
    assert {s.change: s.nodes for s in module.shares} == module.changes
    measured = [s for s in module.shares if s.worth is not None]
    assert measured and all(s.low <= s.worth <= s.high for s in measured)
    assert module.why() in str(result)


def test_listeners_hear_of_every_stage(tuned):
    result, _, events = tuned
    stages = [e.stage for e in events]
    assert stages[0] == "plan" and stages[-1] == "done" and "confirm" in stages
    assert stages.index("confirm") > max(i for i, s in enumerate(stages) if s == "search")
    assert "nodes" in events[0].message
    counts = [e.evaluations for e in events if e.stage == "search"]
    assert counts == sorted(counts) and counts[-1] == result.evaluations
    assert all(e.left_s >= 0 and e.elapsed_s >= 0 for e in events)


FRESH = textwrap.dedent("""
    import json, sys
    import jax, numpy as np
    import graphopt
    from support.small_programs import STATE, chain, is_native, named
    graphopt.install("xla-default", store=sys.argv[1])
    compiled = named("another", chain).lower(STATE).compile()
    (record,) = [r for r in graphopt.report().records if r.name == "jit_another"]
    print(json.dumps({
        "native": is_native(compiled), "outcome": str(record.outcome), "reason": record.reason,
        "result": np.asarray(compiled(STATE)[1]).tolist(),
    }))
""")


def test_a_fresh_process_uses_the_winner(tuned):
    result, store, _ = tuned
    done = run_forked(FRESH, str(store.path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["native"] and found["outcome"] == "rewritten"
    assert found["reason"] == f"stored winner, measured {result.speedup:.2f}x"
    np.testing.assert_allclose(found["result"], jax.jit(chain)(STATE)[1], rtol=1e-3)


def test_the_plugin_of_this_process_uses_the_winner(tuned):
    result, store, _ = tuned
    (module,) = result.modules
    before = named("before", chain)

    def winner(data: bytes) -> bytes:
        graph = build_graph(data)
        return rewrite(graph, decode_decisions(graph, module.decisions)).data

    wanted = host_leaves(compile_with(before, (STATE,), winner)())
    yardstick = program_yardstick(before.lower(STATE).compile(), (STATE,))
    graphopt.install("xla-default", store=store)
    fn = named("after", chain)
    assert is_native(fn.lower(STATE).compile())
    found = host_leaves(fn(STATE))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert yardstick.judge(found).equal  # sums that cancel, in another order
    graphopt.install("xla-default", store=False)
    assert not is_native(named("without", chain).lower(STATE).compile())


def test_replay_measures_again_and_changes_nothing(tuned):
    result, store, _ = tuned
    before = store.rows("SELECT * FROM winners"), store.rows("SELECT * FROM evaluations")
    again = replay(named("cart", chain), STATE, budget_s=2.0, store=str(store.path))
    assert again.adopted and again.verified and again.times.low > 1.0
    assert again.modules[0].decisions == result.modules[0].decisions
    assert again.modules[0].winner == "stored winner"
    assert before == (
        store.rows("SELECT * FROM winners"), store.rows("SELECT * FROM evaluations"),
    )  # fmt: skip


def test_a_filled_store_a_seed_and_a_limit_repeat_a_run(tuned, tmp_path):
    """What the store answers is not measured again, so nothing can come out otherwise."""
    result, store, _ = tuned
    found = [
        tune(named("cart", chain), STATE, budget_s=90.0, evaluations=8, store=store, seed=0)
        for _ in range(2)
    ]
    assert [r.modules[0].decisions for r in found] == [result.modules[0].decisions] * 2
    assert all(r.adopted for r in found)


def test_the_tuned_function_itself_is_not_touched(tuned):
    fn = named("cart", chain)
    assert not is_native(fn.lower(STATE).compile())


# Programs that keep the default.


def test_a_kept_default_is_recorded_and_used(store):
    result = tune(
        named("cart", chain), STATE, budget_s=1.0, evaluations=0, store=store, policy=None
    )
    assert not result.adopted and result.verified
    assert result.speedup == 1.0 and result.tuned_s == result.baseline_s
    assert result.evaluations == 0
    assert "XLA's default is kept" in str(result)
    (winner,) = all_winners(store)
    assert (winner.decisions, winner.speedup, winner.changes) == (KEPT, 1.0, False)
    graphopt.install(store=store)
    assert not is_native(named("kept", chain).lower(STATE).compile())
    (record,) = graphopt.report().records
    assert record.reason == "tuned: XLA's default is the fastest known"
    again = replay(named("cart", chain), STATE, budget_s=0.5, store=store)
    assert (again.adopted, again.modules[0].winner) == (False, "default")


def test_there_is_nothing_to_replay(store):
    with pytest.raises(WorkloadError, match="no stored winner"):
        replay(named("cart", chain), STATE, store=store)


def test_a_wrong_winner_is_not_adopted_and_never_tried_again(store, monkeypatch):
    """The last comparison, on the real arguments, has the last word."""
    from graphopt.learn.tune import api

    def confirm_wrong(*args):
        outcome = confirm(*args)
        return type(outcome)(outcome.times, Judgement(False, 0.5, 1, 1))

    monkeypatch.setattr(api, "confirm", confirm_wrong)
    fn = named("cart", chain)
    found = tune(fn, STATE, budget_s=10.0, evaluations=2, store=store)
    assert not found.adopted and not found.verified
    fingerprint = found.modules[0].fingerprint
    reasons = quarantined(store, fingerprint).values()
    assert reasons and set(reasons) == {"on the real arguments: wrong result: off by 5.0e-01"}
    assert found.problem == "wrong result: off by 5.0e-01" and found.problem in str(found)
    assert get_winner(store, fingerprint).decisions == KEPT


# The subject and the last measurement.


@pytest.mark.parametrize(
    "make", [lambda: chain, lambda: named("cart", chain)], ids=["plain", "jitted"]
)
def test_every_compile_of_a_subject_is_asked_for_its_rewrite(make):
    fn = make()
    if hasattr(fn, "lower"):
        fn(STATE)
    subject = make_subject(fn, (STATE,))
    asked = []

    def transform(data):
        asked.append(build_graph(data).fingerprint)
        return None

    for _ in range(2):
        subject.compile(transform)
    subject.compile(transform, {"xla_cpu_prefer_vector_width": "128"})
    assert len(asked) == 3 and len(set(asked)) == 1
    fn = named("cart", chain)
    assert make_subject(fn, (STATE,)).digest == make_subject(chain, (STATE,)).digest


def test_python_numbers_and_wide_arrays_are_perturbed_too():
    """Perturbed runs of the default must reach every floating-point argument."""

    def chaotic(rate, x):
        return jax.lax.fori_loop(0, 18, lambda _, y: rate * y * (1 - y), x)

    for args in (
        (3.9, 0.4),
        (np.float64(3.9), np.full(3, 0.4)),
        (jnp.float32(3.9), jnp.full(3, 0.4)),
    ):
        subject = make_subject(chaotic, args)
        growth = _yardstick(subject, Runs(subject.default, donates=False)).growth
        assert growth[0] > 1e-5


# Interrupts and kills.

SLOW = textwrap.dedent("""
    import json, sys
    import graphopt
    from support.small_programs import STATE, chain, named
    from benchmarks.faults import child_processes

    def listener(event):
        if event.stage == "search" and event.evaluations >= 4:
            print(json.dumps({"children": child_processes()}), flush=True)

    result = graphopt.tune(named("cart", chain), STATE, budget_s=300.0, store=sys.argv[1], listener=listener)
    print(json.dumps({"result": result.to_json(), "children": child_processes()}), flush=True)
""")


@pytest.fixture
def searching(store):
    """A process in the middle of its search, and the workers that it had then."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(store.path)],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    line = process.stdout.readline()
    children = json.loads(line)["children"] if line else []
    yield process, children
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_an_interrupt_confirms_the_best_so_far(searching, store):
    process, children = searching
    assert children and all(map(is_alive, children))
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    last = json.loads(output.splitlines()[-1])
    assert last["children"] == []
    assert last["result"]["verified"] and last["result"]["evaluations"] >= 4
    assert last["result"]["seconds"] < 100
    assert becomes(lambda: not any(map(is_alive, children)), within_s=2.0)
    (winner,) = all_winners(store)
    adopted = last["result"]["adopted"]
    assert winner.changes == adopted
    assert winner.decisions == last["result"]["modules"][0]["decisions"]


def test_a_killed_tuner_leaves_its_evaluations_and_no_worker(searching, store):
    process, children = searching
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert children
    assert becomes(lambda: not any(map(is_alive, children)), within_s=2.0)
    assert store.rows("SELECT count(*) FROM evaluations")[0][0] >= 4
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    assert all_winners(store) == []
