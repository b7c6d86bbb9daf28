"""Facts of `CpuCosts` by name, so that single ones can be measured, stored and put in place of the table's.

A name is that of a field, or for a function ``function_ns.NAME.f32`` (or ``f64``), such as
``function_ns.tanh.f32``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final

from graphopt.errors import ConfigError
from graphopt.machine.costs import CpuCosts

FUNCTIONS: Final = "function_ns"
TYPES: Final = ("f32", "f64")
"""In the order of the pairs in `CpuCosts.function_ns`."""


def unit_of(name: str) -> str:
    """The unit of a fact.

    Raises:
        KeyError: there is no such fact.
    """
    field = name.partition(".")[0]
    return str({item.name: item.metadata["unit"] for item in fields(CpuCosts)}[field])


def fact_of(costs: CpuCosts, name: str) -> float:
    """The value of a fact.

    Raises:
        KeyError: there is no such fact with one number as its value.
    """
    field, *path = name.split(".")
    value = getattr(costs, field, None)
    if field == FUNCTIONS and len(path) == 2 and path[1] in TYPES:
        return float(costs.function_ns[path[0]][TYPES.index(path[1])])
    if path or type(value) not in (int, float):
        raise KeyError(name)
    return float(value)  # type: ignore[arg-type]


def with_facts(costs: CpuCosts, measured: Mapping[str, float]) -> CpuCosts:
    """Costs with measured values in place of their own.

    Args:
        costs: the others.
        measured: name of a fact -> value; names that this version does not have are left out.

    Raises:
        ConfigError: a value is no positive, finite number.
    """
    values: dict[str, Any] = {}
    functions = dict(costs.function_ns)
    for name, value in measured.items():
        try:
            fact_of(costs, name)
        except KeyError:
            continue
        if type(value) not in (int, float) or not 0.0 < value <= sys.float_info.max:
            raise ConfigError(
                what=f"{name} is {value!r}; costs must be finite and positive",
                where="measured costs of this machine",
                fix="Measure them again: graphopt doctor --calibrate.",
            )
        if name.startswith(f"{FUNCTIONS}."):
            _, function, dtype = name.split(".")
            pair = list(functions[function])
            pair[TYPES.index(dtype)] = float(value)
            functions[function] = (pair[0], pair[1])
        else:
            values[name] = value
    if functions != dict(costs.function_ns):
        values[FUNCTIONS] = MappingProxyType(functions)
    return replace(costs, **values)
