"""Facts of a machine as fields of a table: each has a unit, a meaning and what measures it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

from graphopt.errors import ConfigError

PROGRAMS: Final = "graphopt demo --workloads corpus"


def fact(default: Any, unit: str, meaning: str, measured_by: str = PROGRAMS) -> Any:
    """A field of a table of facts.

    Args:
        default: the value where a kind of machine has none of its own.
        unit: such as "ns" or "ns per element"; "" for a count.
        meaning: one sentence without its full stop.
        measured_by: the command that measures it, or whole programs with and without a decision that
            rests on it.
    """
    about = {"unit": unit, "meaning": meaning, "measured_by": measured_by}
    return field(default_factory=lambda: default, metadata=about)


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of the printed table: a field of `graphopt.machine.CpuCosts` with its value there."""

    name: str
    value: Any
    unit: str
    meaning: str
    measured_by: str


def facts(costs: Any) -> list[Fact]:
    """Every field of a table of costs, in its order."""
    return [Fact(f.name, getattr(costs, f.name), **f.metadata) for f in fields(costs)]


def check_facts(costs: Any) -> None:
    """Checks every number of a table of costs.

    Raises:
        ConfigError: a number is not finite or not positive, or one inside a table is negative.
    """
    for item in fields(costs):
        value = getattr(costs, item.name)
        alone = isinstance(value, int | float)
        if not all(math.isfinite(n) and (n > 0 or (n == 0 and not alone)) for n in numbers(value)):
            raise ConfigError(
                what=f"{item.name} is {value}; costs must be finite and positive",
                where="the costs of a machine",
                fix=f"Measure it again: {item.metadata['measured_by']}.",
            )


def numbers(value: Any) -> Iterator[float]:
    """Every number inside a value of the table."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from numbers(inner)
    elif is_dataclass(value):
        for item in fields(value):
            yield from numbers(getattr(value, item.name))
    else:
        for inner in value:
            yield from numbers(inner)
