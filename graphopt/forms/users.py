"""What becomes of a result: whether all that reads it leads to a reduction, or takes a part of it.

XLA gives a reduction and the operations before it to its kernel library as one call, as far as that knows
them and nothing else reads what lies between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np

from graphopt.machine.units import LIBRARY_PREFERRED_ELEMENTS

Level = tuple[Any, Any]
"""A traced program and one of its equations."""

_ON_THE_WAY: Final = frozenset(
    "abs add add_any broadcast_in_dim ceil convert_element_type copy cos div erf exp expm1 floor integer_pow "
    "log log1p logistic max min mul neg pow reshape round rsqrt sign sin sqrt square squeeze sub tan tanh "
    "transpose".split()
)
"""Primitives that become operations of the kernel library."""

_TYPES: Final = frozenset({np.dtype(t) for t in (jnp.bfloat16, np.float32, np.float64)})

_REDUCTIONS: Final = frozenset({"reduce_sum", "reduce_max", "reduce_min"})

_SLICES: Final = frozenset({"dynamic_slice", "gather", "slice"})

_CALLS: Final = frozenset(
    "checkpoint closed_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr jit pjit remat".split()
)
"""Primitives that XLA writes where they are called."""

_LONGEST: Final = 64
"""Operations that are followed."""


class _Program:
    """A traced program, as its values see it.

    Attributes:
        readers: value -> equations that read it, each once.
        places: value -> where it stands among the program's results.
        equations: primitive -> its equations.
        found: a question, a primitive and types -> the answer.
    """

    def __init__(self, jaxpr: Any) -> None:
        """Goes through the program once."""
        self.readers: dict[Any, list[Any]] = defaultdict(list)
        self.places: dict[Any, list[int]] = defaultdict(list)
        self.equations: dict[Any, list[Any]] = defaultdict(list)
        self.found: dict[Any, bool] = {}
        for equation in jaxpr.eqns:
            self.equations[equation.primitive].append(equation)
            for value in {id(v): v for v in equation.invars if not hasattr(v, "val")}.values():
                self.readers[value].append(equation)
        for place, value in enumerate(jaxpr.outvars):
            if not hasattr(value, "val"):
                self.places[value].append(place)

    def all_alike(self, question: str, equation: Any, holds: Callable[[Any], bool]) -> bool:
        """True if something holds of an equation and all that jax lowers with it; found out once."""
        types = tuple(v.aval for v in equation.invars)
        key = question, equation.primitive, types
        if key not in self.found:
            same = self.equations[equation.primitive]
            alike = (e for e in same if tuple(v.aval for v in e.invars) == types)
            self.found[key] = all(holds(e) for e in alike)
        return self.found[key]


_programs: WeakKeyDictionary[Any, _Program] = WeakKeyDictionary()
"""Of traced programs that live."""


def _program(jaxpr: Any) -> _Program:
    found = _programs.get(jaxpr)
    if found is None:
        found = _programs[jaxpr] = _Program(jaxpr)
    return found


def are_reduced(levels: Sequence[Level]) -> bool:
    """True if the library computes an equation, and all like it, as part of a reduction.

    Equations of one primitive with the same types are lowered once for all of them.

    Args:
        levels: the equation in its program, that program's call in the program around it, and so on.
    """
    (jaxpr, equation), *outer = levels
    return _program(jaxpr).all_alike(
        "reduced", equation, lambda alike: _is_reduced([(jaxpr, alike), *outer])
    )


def are_sliced(levels: Sequence[Level]) -> bool:
    """True if of an equation, and all like it, only parts are read, together less than half of it."""
    jaxpr, equation = levels[0]
    program = _program(jaxpr)
    return program.all_alike("sliced", equation, lambda alike: _is_sliced(program, alike))


def _is_sliced(program: _Program, equation: Any) -> bool:
    value = _only(equation.outvars)
    if value is None or program.places[value]:
        return False
    readers = program.readers[value]
    read = sum(v.aval.size for reader in readers for v in reader.outvars)
    return all(e.primitive.name in _SLICES for e in readers) and bool(2 * read < value.aval.size)


def _is_reduced(levels: list[Level]) -> bool:
    """The same of one equation: its value has one reader after the other, the last a reduction."""
    value = _only(levels[0][1].outvars)
    for _ in range(_LONGEST):
        if value is None or value.aval.dtype not in _TYPES:
            return False
        program = _program(levels[0][0])
        readers, places = program.readers[value], program.places[value]
        if len(readers) + len(places) != 1:
            return False
        if places:
            value = _outside(levels, places[0])
        elif readers[0].primitive.name in _REDUCTIONS:
            return bool(value.aval.size >= LIBRARY_PREFERRED_ELEMENTS)
        elif readers[0].primitive.name in _CALLS:
            value = _inside(levels, readers[0], value)
        else:
            known = readers[0].primitive.name in _ON_THE_WAY
            value = _only(readers[0].outvars) if known else None
    return False


def _only(values: Sequence[Any]) -> Any | None:
    return values[0] if len(values) == 1 else None


def _outside(levels: list[Level], place: int) -> Any | None:
    """What a program's result is where it is called; None if that is unknown. Leaves the program."""
    levels.pop(0)
    call = levels[0][1] if levels else None
    if call is None or call.primitive.name not in _CALLS or place >= len(call.outvars):
        return None
    return call.outvars[place]


def _inside(levels: list[Level], call: Any, value: Any) -> Any | None:
    """What a value is in a program that is called with it; None if that is unknown. Enters the program."""
    bodies = (call.params.get(name) for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"))
    body = next((b for b in bodies if b is not None), None)
    body = getattr(body, "jaxpr", body)
    places = [place for place, v in enumerate(call.invars) if v is value]
    if body is None or len(places) != 1 or len(body.invars) != len(call.invars):
        return None
    levels[0] = levels[0][0], call
    levels.insert(0, (body, None))
    return body.invars[places[0]]
