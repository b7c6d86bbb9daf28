"""The machine and its execution units, as data."""

from graphopt.machine.machine import Machine, machine_key, probe, read_machine
from graphopt.machine.units import Unit, UnitKind, cpu_units, unit_index

__all__ = [
    "Machine",
    "Unit",
    "UnitKind",
    "cpu_units",
    "machine_key",
    "probe",
    "read_machine",
    "unit_index",
]
