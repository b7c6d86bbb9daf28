"""install() and tune() on machines that the table of costs does not know, and what doctor says of them."""

from __future__ import annotations

import pytest
from golden.decisions import machine
from support.reports import agrees
from support.small_programs import STATE, chain, named
from support.tuned import X, quick, wave

import graphopt
from graphopt.cli import main
from graphopt.evaluate.commands import calibrate as command
from graphopt.lazy.runtime import optimizer
from graphopt.machine import CpuCosts, cost_rows, cost_tables, costs_for, own_costs, own_kind, probe
from graphopt.machine.cost_rows import CostRow, default_costs
from graphopt.machine.kinds import MachineKind, jaxlib_version
from graphopt.machine.machine import read_vendor
from graphopt.measure.calibrating.probes import PROBES
from graphopt.measure.calibrating.result import Calibration, facts_of
from graphopt.plugin.installing import _depends_on
from graphopt.policy import resolve
from graphopt.store import Store
from graphopt.store.machine_costs import get_costs, put_costs

pytestmark = pytest.mark.usefixtures("clean_plugin")

SLOW = {"thunk_ns": 400.0, "handover_ns": 90_000.0}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.sqlite"))
    return Store()


def cache_key() -> str:
    return "-".join(_depends_on(resolve("heuristic"), None))


# install().


def test_install_takes_what_was_measured(store, unknown_kind):
    plain, lazy = cache_key(), optimizer.cache_text(resolve("heuristic"))
    put_costs(store, own_kind(), SLOW, 29)
    graphopt.install("heuristic")
    assert optimizer.cache_text(resolve("heuristic")) != lazy
    assert (own_costs().thunk_ns, own_costs().handover_ns) == (400.0, 90_000.0)
    assert cache_key() != plain
    assert agrees(named("cart")(STATE))
    graphopt.install("heuristic", store=False)
    assert own_costs() == default_costs(jaxlib_version()) and cache_key() == plain


def test_install_on_a_known_kind_has_the_row_whatever_was_measured(store, monkeypatch):
    row = CostRow("", probe().simd_bits, "0", CpuCosts())
    monkeypatch.setattr(cost_rows, "CPU_COSTS", (row,))
    plain = cache_key()
    put_costs(store, own_kind(), SLOW, 29)
    graphopt.install("heuristic")
    assert own_costs() == CpuCosts() and cache_key() == plain


@pytest.mark.parametrize("facts", ['{"thunk_ns": -1}', "no JSON"])
def test_install_survives_damaged_costs_and_says_so(store, unknown_kind, facts):
    put_costs(store, own_kind(), SLOW, 29)
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE machine_costs SET facts=?", (facts,))
    graphopt.install("heuristic")
    assert own_costs() == default_costs(jaxlib_version())
    assert any("measured costs of this machine are not used" in n for n in graphopt.report().notes)
    assert agrees(named("cart")(STATE))


def test_install_survives_a_file_that_is_no_store(store, unknown_kind):
    store.path.write_bytes(b"this is no store" * 100)
    graphopt.install("heuristic")
    assert agrees(named("cart")(STATE)) and own_costs() == default_costs(jaxlib_version())


# tune().


@pytest.mark.slow
def test_tune_measures_an_unknown_machine_once_and_only_once(store, unknown_kind, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CALIBRATE", "1")
    events = []
    quick(named("cart", chain), STATE, store=store, listener=events.append)
    first = [event for event in events if event.stage == "calibrate"]
    assert len(first) == 2 and events[:2] == first
    assert "once" in first[0].message and first[1].message.startswith("measured ")
    stored = get_costs(store, own_kind())
    assert stored is not None and stored.measured > 0
    assert {**cost_rows.handed_over()} == stored.facts
    events.clear()
    quick(wave, X, store=store, listener=events.append)
    assert events[0].stage == "plan" and get_costs(store, own_kind()) == stored


def test_tune_goes_on_where_calibration_fails(store, unknown_kind, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CALIBRATE", "1")
    dying = ("-c", "import os; os.abort()")
    monkeypatch.setattr("graphopt.measure.calibrating.calibrate.CHILD", dying)
    events = []
    result = quick(wave, X, store=store, listener=events.append)
    assert result.verified and own_costs() == default_costs(jaxlib_version())
    assert [e.message for e in events if e.stage == "calibrate"][1] == (
        "measured 0 facts; 0 differ from the defaults"
    )


# graphopt doctor.


def doctor(capsys, *flags: str) -> str:
    assert main(["doctor", *flags]) == 0
    return capsys.readouterr().out


def test_doctor_names_the_row_of_a_known_kind(capsys, monkeypatch, store):
    row = CostRow(probe().name[:3], probe().simd_bits, jaxlib_version(), CpuCosts())
    monkeypatch.setattr(cost_rows, "CPU_COSTS", (row,))
    expected = f"of a known kind: {row.processor}, {row.simd_bits}-bit vectors, jaxlib {row.jaxlib}"
    assert f"costs: {expected}\n" in doctor(capsys)


def test_doctor_says_what_is_in_use_elsewhere(capsys, unknown_kind, store):
    hint = "graphopt doctor --calibrate measures this machine"
    assert f"costs: default; {hint}\n" in doctor(capsys)
    put_costs(store, own_kind(), {}, 0)
    date = get_costs(store, own_kind()).date
    assert f"costs: default: the calibration of {date} failed" in doctor(capsys)
    put_costs(store, own_kind(), SLOW, 29)
    assert f"costs: calibrated on {date}, 2 facts differ from the default\n" in doctor(capsys)
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE machine_costs SET facts='{'")
    assert "costs: default, since measured costs of this machine are damaged" in doctor(capsys)


def calibration(slower: dict[str, float]) -> Calibration:
    ends = [one.reference_ns[slower.get(one.name, 1.0) > 1.0] for one in PROBES]
    readings = [(p, slower.get(p.name, 1.0) * end) for p, end in zip(PROBES, ends, strict=True)]
    return Calibration(own_kind(), facts_of(readings, CpuCosts()), ("a note",), 4.0)


def test_doctor_calibrates_prints_and_stores(capsys, monkeypatch, unknown_kind, store):
    found = calibration({"dispatch": 4.0, "tanh f32": 2.0, "loop": 10.0})
    monkeypatch.setattr(command, "calibrate", lambda tell: found)
    text = doctor(capsys, "--calibrate")
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["thunk_ns"] == ["thunk_ns", "ns", "55", "220", "4.00", "differs"]
    assert lines["loop_ns"][-6:] == ["refused:", "8", "times", "off", "and", "more"]
    assert lines["runtime_call_ns"] == ["runtime_call_ns", "ns", "500", "500", "1.00"]
    assert "a note\n" in text and str(store.path) in text and "not used" not in text
    assert get_costs(store, own_kind()).facts == found.facts
    assert "calibrated on" in doctor(capsys)


def test_the_printed_row_is_what_was_measured(monkeypatch, unknown_kind):
    found = calibration({"dispatch": 4.0, "tanh f32": 2.0, "sine f64": 0.5})
    names = {"CostRow": CostRow, "CpuCosts": CpuCosts, "FUNCTIONS": cost_tables.FUNCTIONS}
    (row,) = eval(f"({command.row_text(found)})", names)
    assert row.holds(probe(), own_kind().jaxlib)
    assert row.costs == costs_for(probe(), own_kind().jaxlib, found.facts)
    assert row.costs.function_ns["tanh"] == (0.4, CpuCosts().function_ns["tanh"][1])


def test_doctor_says_that_a_known_kind_keeps_its_row(capsys, monkeypatch, store):
    monkeypatch.setattr(command, "calibrate", lambda tell: calibration({}))
    monkeypatch.setattr(command, "here_is_known", lambda: True)
    text = doctor(capsys, "--calibrate")
    assert "not used: this kind of machine has a row in the table" in text
    assert "CostRow" not in text


def test_doctor_fails_where_nothing_could_be_measured(capsys, monkeypatch, store):
    nothing = Calibration(own_kind(), (), ("dispatch: not measured, the child died",), 1.0)
    monkeypatch.setattr(command, "calibrate", lambda tell: nothing)
    assert main(["doctor", "--calibrate"]) == 1
    assert "the child died" in capsys.readouterr().out
    assert not store.exists()


# Kinds.


def test_the_kind_of_this_machine_is_what_was_probed():
    kind = own_kind()
    assert (kind.name, kind.simd_bits, kind.cores) == (
        probe().name,
        probe().simd_bits,
        probe().cores,
    )
    assert kind.name in str(kind) and kind.jaxlib in str(kind)
    assert machine("epyc").name != machine("xeon").name


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", "GenuineIntel"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "0x41 0xd0c"),
        ("", "unknown"),
    ],
)
def test_vendors_are_read(tmp_path, text, vendor):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(text)
    assert read_vendor(tmp_path) == vendor
    assert str(MachineKind(vendor, "a CPU", 256, 4, "0.10.2")).startswith("a CPU, 256-bit")
