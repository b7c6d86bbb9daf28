"""What was measured of machines, in the store: kept, migrated, and used where no row of the table holds."""

from __future__ import annotations

import dataclasses

import pytest

from graphopt.errors import ConfigError, GraphOptError, StoreError
from graphopt.machine import CpuCosts, own_costs, own_kind
from graphopt.machine.cost_rows import default_costs, handed_over
from graphopt.machine.kinds import jaxlib_version
from graphopt.store import Store
from graphopt.store.machine_costs import get_costs, put_costs, use_stored_costs

FACTS = {"thunk_ns": 99.0, "function_ns.tanh.f64": 1.5}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


def damage(store: Store, column: str, value: object) -> None:
    with store.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE machine_costs SET {column}=?", (value,))


def test_what_was_measured_comes_back(store):
    put_costs(store, own_kind(), {"thunk_ns": 1.0}, 3)
    put_costs(store, own_kind(), FACTS, 29)
    found = get_costs(Store(store.path), own_kind())
    assert (found.facts, found.measured) == (FACTS, 29)
    assert len(found.date) == len("2026-01-01") and found.date[:2] == "20"


@pytest.mark.parametrize(
    "other",
    [{"vendor": "x"}, {"name": "x"}, {"simd_bits": 1}, {"cores": 999}, {"jaxlib": "0.11.0"}],
)
def test_other_kinds_know_nothing_of_it(store, other):
    put_costs(store, own_kind(), FACTS, 29)
    assert get_costs(store, dataclasses.replace(own_kind(), **other)) is None


def test_reading_makes_no_file(store, unknown_kind):
    assert get_costs(store, own_kind()) is None
    assert use_stored_costs(store) is None and use_stored_costs(None) is None
    assert not store.exists()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("facts", "{"),
        ("facts", "[1]"),
        ("facts", "[" * 100_000),
        ("seen", "never"),
        ("measured", "x"),
    ],
)
def test_a_damaged_row_is_an_error(store, unknown_kind, column, value):
    put_costs(store, own_kind(), FACTS, 29)
    damage(store, column, value)
    with pytest.raises(StoreError, match="damaged"):
        use_stored_costs(store)
    assert own_costs() == default_costs(jaxlib_version())


@pytest.mark.parametrize(
    "value", ["NaN", "-1", "0", "Infinity", "true", '"fast"', "[1]", "{}", "1" + 400 * "0"]
)
@pytest.mark.parametrize("name", ["thunk_ns", "function_ns.tanh.f32"])
def test_values_that_are_no_costs_are_not_used(store, unknown_kind, name, value):
    put_costs(store, own_kind(), FACTS, 29)
    use_stored_costs(store)
    damage(store, "facts", f'{{"{name}": {value}}}')
    with pytest.raises(ConfigError, match=f"{name} is .*doctor --calibrate"):
        use_stored_costs(store)
    assert own_costs() == default_costs(jaxlib_version()) and handed_over() == {}


def test_stored_facts_are_used_and_forgotten_with_the_store(store, unknown_kind):
    names = {**FACTS, "a fact of another version": 1.0, "function_ns.sinus.f32": 1.0, "lapack": 2.0}
    put_costs(store, own_kind(), names, 29)
    assert use_stored_costs(store).facts == names
    costs = own_costs()
    assert costs.thunk_ns == 99.0
    assert costs.function_ns["tanh"] == (CpuCosts().function_ns["tanh"][0], 1.5)
    changed, default = {"thunk_ns", "function_ns"}, default_costs(jaxlib_version())
    for field in dataclasses.fields(CpuCosts):
        same = getattr(costs, field.name) == getattr(default, field.name)
        assert same is (field.name not in changed)
    use_stored_costs(None)
    assert own_costs() == default_costs(jaxlib_version()) and handed_over() == {}


def test_a_known_kind_reads_nothing(store, monkeypatch):
    monkeypatch.setattr("graphopt.store.machine_costs.here_is_known", lambda: True)
    store.path.write_bytes(b"this is no store" * 100)
    assert use_stored_costs(store) is None
    with pytest.raises(GraphOptError):
        get_costs(store, own_kind())
