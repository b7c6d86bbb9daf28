"""Whether an operation stands in the body of a loop or the branch of a conditional.

XLA's passes do not treat bodies and branches as they treat the program around them: it brings the channels
of a convolution to the end in the program's own computation only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from graphopt.forms.users import Level

_BODIES: Final = frozenset({"cond", "scan", "while"})
"""Primitives that XLA computes by computations of their own."""

_found: WeakKeyDictionary[Any, dict[Any, frozenset[Any]]] = WeakKeyDictionary()
"""Traced program -> primitive -> types of the operands of its equations in bodies."""


def stands_in_body(levels: Sequence[Level]) -> bool:
    """True if an equation, or one of the same operands' types, stands in a body anywhere in the program.

    jax lowers equal equations once for all of a program, wherever they stand.

    Args:
        levels: the equation in its program, that program's call in the program around it, and so on.
    """
    equation, (outermost, _) = levels[0][1], levels[-1]
    by_primitive = _found.setdefault(outermost, {})
    if equation.primitive not in by_primitive:
        inside = _in_bodies(outermost, equation.primitive, False, set())
        by_primitive[equation.primitive] = frozenset(map(_types, inside))
    return _types(equation) in by_primitive[equation.primitive]


def _types(equation: Any) -> tuple[Any, ...]:
    return tuple(variable.aval for variable in equation.invars)


def _in_bodies(
    program: Any, primitive: Any, inside: bool, seen: set[tuple[int, bool]]
) -> Iterator[Any]:
    """Equations of a primitive that stand in bodies, at any depth; programs that are shared are seen once."""
    if (id(program), inside) in seen:
        return
    seen.add((id(program), inside))
    for equation in program.eqns:
        if inside and equation.primitive is primitive:
            yield equation
        within = inside or equation.primitive.name in _BODIES
        for called in _programs(equation):
            yield from _in_bodies(called, primitive, within, seen)


def _programs(equation: Any) -> Iterator[Any]:
    """The traced programs among an equation's parameters."""
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            program = getattr(item, "jaxpr", item)
            if hasattr(program, "eqns"):
                yield program
