"""How long the steps of a graph may take: long ones gain nothing from running together."""

from __future__ import annotations

from math import isqrt, prod
from typing import Final

from graphopt.lazy.core.node import Instr
from graphopt.lazy.runtime.trace import Plan

MAX_WORK: Final = 1 << 20
"""Elements that a graph may compute, about 0.2 ms: during longer ones the host prepares the next step."""

PRODUCTS: Final = frozenset(("conv", "einsum", "matmul", "tensordot", "vecdot"))
"""Operations of as many multiply-adds as the root of all sizes' product, for matrices."""

CUBIC: Final = frozenset((
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matrix_rank", "pinv", "qr", "slogdet",
    "solve", "svd", "svdvals",
))  # fmt: skip
"""Operations of as many steps as a matrix's size to the power of 1.5."""

UNKNOWN: Final = frozenset(("vmap",))
"""Operations that may do anything."""

VECTOR: Final = 8
"""Multiply-adds of a product in the time of one computed element."""


MOST: Final = 32
"""Steps that run together at most."""

MAX_TOGETHER: Final = 1 << 22
"""Elements that steps which run together compute: meanwhile the host prepares the next ones."""


def steps_together(plan: Plan) -> int:
    """How many steps of a graph may run together: 0 for graphs that are too large, or on no CPU."""
    if plan.device.platform != "cpu" or any(step.instr.op.name in UNKNOWN for step in plan.steps):
        return 0
    work = sum(work_of(step.instr) for step in plan.steps)
    if work > MAX_WORK:
        return 0
    return min(MOST, 1 << (MAX_TOGETHER // max(1, work)).bit_length() - 1)


def work_of(instr: Instr) -> int:
    """Elements that an operation computes, or as many as take equally long."""
    sizes = [aval.size for aval in (*instr.in_avals, instr.aval)]
    if instr.op.name in PRODUCTS:
        return isqrt(prod(sizes)) // VECTOR
    if instr.op.name in CUBIC:
        return max(sizes) * isqrt(max(sizes))
    return max(sizes)
