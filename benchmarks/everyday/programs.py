"""Programs of many kinds as people write them.

    graphopt evaluate --workloads benchmarks.everyday.programs:MIDDLE --policy shipped --budget-s 0

``WORKLOADS`` has each at two or three sizes, ``MIDDLE`` at one: the second. A builder returns ``(fn, args)``:
a pure function and arrays made from fixed seeds. None is of a library, and none was written with a compiler
in mind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.everyday import (
    agent_programs,
    derivative_programs,
    environment_programs,
    equation_programs,
    finance_programs,
    integer_programs,
    picture_programs,
    sampler_programs,
    science_programs,
    sequence_programs,
    serving_programs,
    signal_programs,
    statistics_programs,
    training_programs,
)
from benchmarks.everyday.common import Program

_FAMILIES: Final = (
    sampler_programs,
    sequence_programs,
    equation_programs,
    environment_programs,
    agent_programs,
    integer_programs,
    training_programs,
    derivative_programs,
    serving_programs,
    statistics_programs,
    picture_programs,
    signal_programs,
    finance_programs,
    science_programs,
)

_SIZES: Final = {program: sizes for family in _FAMILIES for program, sizes in family.SIZES.items()}

WORKLOADS: Final[dict[str, Callable[[], Program]]] = {
    f"{name}-{size}": partial(build, size, measure)
    for (name, build), sizes in _SIZES.items()
    for size, measure in sizes
}

MIDDLE: Final[dict[str, Callable[[], Program]]] = {
    f"{name}-{size}": partial(build, size, measure)
    for (name, build), (_, (size, measure), *_) in _SIZES.items()
}
