"""Calibration: real probes are plausible, and whatever a child does, what is left is usable."""

from __future__ import annotations

import textwrap
import time
from dataclasses import replace

import jax.numpy as jnp
import pytest
from support.processes import becomes, is_alive

from graphopt.errors import MeasureError
from graphopt.machine import CpuCosts, own_kind
from graphopt.machine.costs import CALIBRATE
from graphopt.machine.facts import facts
from graphopt.machine.named_facts import fact_of
from graphopt.measure.calibrating import calibrate as calibrating
from graphopt.measure.calibrating import once
from graphopt.measure.calibrating.calibrate import calibrate
from graphopt.measure.calibrating.probes import PROBES
from graphopt.measure.calibrating.programs import compile_loop, compile_on, shortest_ns
from graphopt.measure.calibrating.result import Calibration, facts_of
from graphopt.store import Store
from graphopt.store.machine_costs import get_costs

NAMES = [probe.name for probe in PROBES]
REFERENCES = {probe.name: probe.reference_ns[1] for probe in PROBES}


def nothing(line: str) -> None:
    """Hears of progress."""


def stub(special: str) -> tuple[str, ...]:
    """A child that reads as the reference does, after `special` had its chance at each `name`."""
    code = f"""
        import json, os, sys, time
        references = {REFERENCES!r}
        for line in sys.stdin:
            name = json.loads(line)["probe"]
            reading = references.get(name, 1.0)
            answer = {{"reading_ns": reading}}
            {special}
            print(json.dumps(answer), flush=True)
    """
    return "-c", textwrap.dedent(code)


def by_name(found: Calibration) -> dict[str, float]:
    return {fact.name: fact.ratio for fact in found.measured}


# What is measured.


def test_every_fact_of_a_probe_is_a_number_of_the_table_and_has_one_probe():
    names = [name for probe in PROBES for name in probe.facts]
    assert len(set(names)) == len(names) and len(set(NAMES)) == len(NAMES)
    assert all(fact_of(CpuCosts(), name) > 0 for name in names)


def test_facts_that_name_this_command_are_measured_by_it():
    measured = {name for probe in PROBES for name in probe.facts}
    assert {fact.name for fact in facts(CpuCosts()) if fact.measured_by == CALIBRATE} <= measured


@pytest.mark.slow
def test_a_real_calibration_is_plausible():
    lines: list[str] = []
    found = calibrate(lines.append, budget_s=30.0, answer_s=30.0)
    assert found.kind == own_kind()
    assert lines[0] == f"measuring this machine: {NAMES[0]} (1 of {len(NAMES)})"
    assert all(note.startswith("hand-over: ") for note in found.notes), found.notes
    expected = [name for probe in PROBES for name in probe.facts]
    if found.notes:  # one core, or one that other programs keep busy
        expected = [name for name in expected if name not in ("handover_ns", "split_ns")]
    assert [fact.name for fact in found.measured] == expected
    assert all(fact.plausible for fact in found.measured if fact.name in found.facts)
    assert set(found.facts) == {fact.name for fact in found.measured if fact.note == "differs"}


def test_programs_run_where_they_are_told_to():
    x = jnp.ones(64, jnp.float32)
    loop = compile_loop(lambda value: value * 2.0, x)
    assert [float(loop(count)()[0]) for count in (0, 1, 5)] == [1.0, 2.0, 32.0]
    (dot,) = [compile_on(lambda a: a @ a, (jnp.eye(16, dtype=jnp.float32),), "library", op="dot")]
    assert b"__ynn_fusion" in dot.executable.as_text().encode()
    with pytest.raises(MeasureError, match="no operation of the program may run on library"):
        compile_on(lambda a: jnp.sin(a), (x,), "library")
    assert all(0 < ns < float("inf") for ns in shortest_ns([loop(1), dot], 0.0))


@pytest.mark.usefixtures("unknown_kind")
def test_a_machine_as_fast_as_the_reference_has_the_values_of_the_table():
    found = calibrate(nothing, arguments=stub(""))
    assert found.notes == () and found.facts == {}
    assert all(fact.value == pytest.approx(fact.default) for fact in found.measured)


@pytest.mark.usefixtures("unknown_kind")
def test_what_is_slower_than_the_rest_has_longer_times_and_smaller_rates():
    slow = 'answer["reading_ns"] *= 4 if name in ("dispatch", "memory", "tanh f64") else 1'
    found = calibrate(nothing, arguments=stub(slow))
    ratios = by_name(found)
    assert ratios["thunk_ns"] == ratios["function_ns.tanh.f64"] == pytest.approx(4.0)
    assert ratios["bytes_per_ns"] == pytest.approx(0.25)
    assert found.facts["thunk_ns"] == pytest.approx(4 * CpuCosts().thunk_ns)
    changed = {"thunk_ns", "short_thunk_ns", "bytes_per_ns", "function_ns.tanh.f64"}
    assert set(found.facts) == changed


@pytest.mark.usefixtures("unknown_kind")
def test_a_machine_on_which_everything_is_slower_has_the_proportions_of_the_table():
    slow = 'answer["reading_ns"] *= 40 if name == "dispatch" else 10'
    found = calibrate(nothing, arguments=stub(slow))
    assert set(found.facts) == {"thunk_ns", "short_thunk_ns"}
    assert found.facts["thunk_ns"] == pytest.approx(4 * CpuCosts().thunk_ns)


def test_few_readings_do_not_tell_how_fast_a_machine_is():
    (probe, *_) = PROBES
    assert {f.ratio for f in facts_of([(probe, 4 * probe.reference_ns[1])], CpuCosts())} == {4.0}


def test_readings_between_those_of_the_known_machines_tell_of_no_difference():
    middle = [(p, (p.reference_ns[0] * p.reference_ns[1]) ** 0.5) for p in PROBES]
    assert {fact.ratio for fact in facts_of(middle, CpuCosts())} == {1.0}
    fast = [(p, p.reference_ns[0] / (2 if p.name == "loop" else 1)) for p in PROBES]
    differing = {f.name: f.ratio for f in facts_of(fast, CpuCosts()) if f.ratio != 1.0}
    assert differing == dict.fromkeys(("loop_ns", "short_loop_ns"), pytest.approx(0.5))


@pytest.mark.usefixtures("unknown_kind")
def test_values_too_far_from_the_table_are_refused():
    found = calibrate(nothing, arguments=stub('answer["reading_ns"] *= 9 if name == "loop" else 1'))
    notes = {fact.name: fact.note for fact in found.measured if fact.note}
    assert notes == dict.fromkeys(("loop_ns", "short_loop_ns"), "refused: 8 times off and more")
    assert found.facts == {}


def test_a_difference_within_the_spread_of_readings_is_none():
    probe = PROBES[0]
    shortest, longest = probe.reference_ns
    above = longest * probe.spread
    for reading, differs in ((0.9 * shortest, False), (1.01 * above, True), (0.7 * shortest, True)):
        for fact in facts_of([(probe, reading)], CpuCosts()):
            assert fact.differs is differs


def test_values_are_compared_with_the_row_that_holds():
    row = replace(CpuCosts(), thunk_ns=2 * CpuCosts().thunk_ns)
    fact, other = facts_of([(PROBES[0], PROBES[0].reference_ns[0])], row)
    assert not other.differs and other.name == "short_thunk_ns"
    assert fact.value == pytest.approx(CpuCosts().thunk_ns)
    assert fact.differs and fact.ratio == pytest.approx(0.5)


# Children that misbehave.


def test_a_crash_costs_one_probe():
    found = calibrate(nothing, arguments=stub('name == "loop" and os.abort()'))
    assert found.notes == ("loop: not measured, the child process died: SIGABRT (abort)",)
    assert set(by_name(found)) == {n for p in PROBES if p.name != "loop" for n in p.facts}


def test_a_child_that_hangs_ends_the_calibration():
    hanging = stub('name == "loop" and time.sleep(1e6)')
    found = calibrate(nothing, budget_s=0.5, answer_s=1.0, arguments=hanging)
    place = NAMES.index("loop")
    assert found.notes[0] == "loop: not measured, no answer within 1 s (hang)"
    assert found.notes[1:] == tuple(
        f"{n}: not measured, the time was up" for n in NAMES[place + 1 :]
    )
    assert set(by_name(found)) == {name for probe in PROBES[:place] for name in probe.facts}


@pytest.mark.parametrize(
    "special",
    [
        'name and print("rubbish")',
        'name and os.write(1, b"\\xff\\xfe\\n")',
        "answer = [1] if name else answer",
        'answer = {"reading_ns": "fast"} if name else answer',
        'answer = {"reading_ns": True} if name else answer',
    ],
)
def test_rubbish_is_noticed_and_given_up(special):
    found = calibrate(nothing, arguments=stub(special))
    assert len(found.notes) == len(PROBES) and found.facts == {}
    assert sum("(garbage)" in note for note in found.notes) == calibrating.MAX_CHILDREN
    assert found.notes[-1].endswith("not measured, the child processes failed")


@pytest.mark.parametrize("reading", ["0", "-1", "float('nan')", "float('inf')", "10**400", "1e300"])
def test_times_that_are_none_are_no_facts(reading):
    found = calibrate(nothing, arguments=stub(f'answer["reading_ns"] = {reading} if name else 1'))
    assert found.measured == () and len(found.notes) == len(PROBES)


def test_probes_that_fail_say_why():
    failing = stub('answer = {"failed": "one core"} if name == "hand-over" else answer')
    found = calibrate(nothing, arguments=failing)
    assert found.notes == ("hand-over: not measured, one core",)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.abort()", "print('hello')"])
def test_a_child_that_cannot_start(code):
    found = calibrate(nothing, arguments=("-c", code))
    assert found.measured == () and found.facts == {}
    assert len(found.notes) == len(PROBES)


def test_an_interrupt_ends_the_child(tmp_path):
    note = tmp_path / "pid"
    writing = stub(f"open({str(note)!r}, 'w').write(str(os.getpid()))")
    asked: list[str] = []

    def interrupt(line: str) -> None:
        asked.append(line)
        if len(asked) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(interrupt, arguments=writing)
    assert becomes(lambda: not is_alive(int(note.read_text())), 10.0)


# Once per machine.


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(once.SWITCH, "1")
    return Store(tmp_path / "store.sqlite")


def use_child(monkeypatch, special: str) -> None:
    monkeypatch.setattr(calibrating, "CHILD", stub(special))


def test_it_is_measured_once(store, unknown_kind, monkeypatch):
    use_child(monkeypatch, 'answer["reading_ns"] *= 2 if name == "dispatch" else 1')
    lines: list[str] = []
    before = time.time()
    once.calibrate_once(store, lines.append)
    assert lines[0].startswith("measuring this machine, once") and len(lines) == 2
    stored = get_costs(store, own_kind())
    assert stored is not None and before <= stored.seen <= time.time()
    assert stored.facts["thunk_ns"] == pytest.approx(2 * CpuCosts().thunk_ns)
    use_child(monkeypatch, "os.abort()")
    once.calibrate_once(store, lines.append)
    assert len(lines) == 2 and get_costs(store, own_kind()) == stored


def test_a_known_kind_is_never_measured(store, monkeypatch):
    monkeypatch.setattr("graphopt.measure.calibrating.once.here_is_known", lambda: True)
    once.calibrate_once(store, pytest.fail)
    assert not store.exists()


def test_it_can_be_turned_off(store, unknown_kind, monkeypatch):
    monkeypatch.setenv(once.SWITCH, "0")
    once.calibrate_once(store, pytest.fail)
    assert not store.exists()


def test_a_failed_calibration_is_not_made_again(store, unknown_kind, monkeypatch):
    use_child(monkeypatch, "os.abort()")
    once.calibrate_once(store, nothing)
    stored = get_costs(store, own_kind())
    assert stored is not None and (stored.facts, stored.measured) == ({}, 0)
    once.calibrate_once(store, pytest.fail)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no more processes")])
def test_an_interrupted_one_is_left_out(store, unknown_kind, error):
    def stopped(tell):
        raise error

    lines: list[str] = []
    once.calibrate_once(store, lines.append, stopped)
    assert lines[-1].startswith("not measured: ") and "defaults are used" in lines[-1]
    assert get_costs(store, own_kind()) is None


def test_an_unusable_store_is_said_and_nothing_more(store, unknown_kind):
    store.path.write_bytes(b"this is no store" * 100)
    lines: list[str] = []
    once.calibrate_once(store, lines.append, pytest.fail)
    assert len(lines) == 1 and lines[0].startswith("not measured: the store")
