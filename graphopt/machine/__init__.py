"""The machine and its execution units, as data."""

from graphopt.machine.cost_rows import costs_for, decide_with, own_costs
from graphopt.machine.costs import CpuCosts
from graphopt.machine.kinds import MachineKind, own_kind
from graphopt.machine.machine import Machine, machine_key, probe, read_machine
from graphopt.machine.units import Unit, UnitKind, cpu_units, unit_index

__all__ = [
    "CpuCosts",
    "Machine",
    "MachineKind",
    "Unit",
    "UnitKind",
    "costs_for",
    "cpu_units",
    "decide_with",
    "machine_key",
    "own_costs",
    "own_kind",
    "probe",
    "read_machine",
    "unit_index",
]
