"""How long the steps of a graph may take: long ones gain nothing from running together."""

from __future__ import annotations

from math import isqrt, prod
from typing import Final

from graphopt.lazy.core.node import Instr
from graphopt.lazy.runtime.trace import Plan

MAX_WORK: Final = 1 << 19
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


def suits(plan: Plan) -> bool:
    """Whether a graph's steps may run together: small ones on a CPU whose indices need no check."""
    if plan.device.platform != "cpu" or any(step.instr.op.has_index for step in plan.steps):
        return False
    if any(step.instr.op.name in UNKNOWN for step in plan.steps):
        return False
    return sum(work_of(step.instr) for step in plan.steps) <= MAX_WORK


def work_of(instr: Instr) -> int:
    """Elements that an operation computes, or as many as take equally long."""
    sizes = [aval.size for aval in (*instr.in_avals, instr.aval)]
    if instr.op.name in PRODUCTS:
        return isqrt(prod(sizes)) // VECTOR
    if instr.op.name in CUBIC:
        return max(sizes) * isqrt(max(sizes))
    return max(sizes)
