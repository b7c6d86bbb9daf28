"""The machine and its execution units, as data."""

from graphopt.machine.machine import Machine, machine_key, probe, read_machine
from graphopt.machine.units import Unit, UnitKind, cpu_units, unit_index
from graphopt.machine.waking import round_trip_ns

__all__ = [
    "Machine",
    "Unit",
    "UnitKind",
    "cpu_units",
    "machine_key",
    "probe",
    "read_machine",
    "round_trip_ns",
    "unit_index",
]
