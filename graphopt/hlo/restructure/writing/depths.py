"""A quick look at what a loop body computes from its counter and constants: is any of it worth an array?

Much cheaper than `graphopt.hlo.restructure.writing.batched`, which finds out what exactly can be computed for
all iterations at once: here every operation on known values counts as known, so no depth is underestimated.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.hlo.module.index import ComputationIndex
from graphopt.hlo.module.opcodes import OP_BY_NAME

Depth = float | list["Depth"] | None
"""Additions along the longest path to a value that may be known before the loop, those of a tuple's elements,
or None where it is not known."""


class _FoundError(Exception):
    """A value is deep enough."""


def reaches(
    computations: dict[int, ComputationIndex], body: int, arguments: Sequence[Depth], least: float
) -> bool:
    """False if nothing that is known in a body takes so many additions per element.

    Args:
        computations: of the module, by id.
        body: id of the computation.
        arguments: depth of each parameter.
        least: additions per element.
    """
    try:
        _depths(computations, body, arguments, least)
    except _FoundError:
        return True
    return False


def _depths(
    computations: dict[int, ComputationIndex], body: int, arguments: Sequence[Depth], least: float
) -> Depth:
    """Depth of the result of a computation."""
    known: dict[int, Depth] = {}
    computation = computations[body]
    for instruction in computation.instructions:
        opcode = instruction.opcode
        operands = [known[o] for o in instruction.operands]
        found: Depth = None
        if opcode == "parameter":
            found = arguments[instruction.proto.parameter_number]
        elif not operands or any(o is not None for o in operands):
            if opcode == "tuple":
                found = operands
            elif opcode == "get-tuple-element":
                source = operands[0]
                if isinstance(source, list):
                    found = source[instruction.proto.tuple_index]
            elif opcode in ("fusion", "call"):
                found = _depths(computations, instruction.called[0], operands, least)
            elif opcode == "while":  # written out, it may be as deep as it likes
                raise _FoundError
            else:
                found = _deeper(opcode, operands, least)
        known[instruction.local] = found
    return known[computation.root]


def _deeper(opcode: str, operands: list[Depth], least: float) -> float | None:
    """Depth of an operation on arrays; None if one is not known."""
    op = OP_BY_NAME.get(opcode)
    deepest = 0.0
    for operand in operands:
        if not isinstance(operand, float):
            return None
        deepest = max(deepest, operand)
    if op is None:
        return None
    if deepest + op.cost >= least:
        raise _FoundError
    return deepest + op.cost
