"""What a form is, and what it sees of the operation that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphopt.machine import CpuCosts


@dataclass(frozen=True)
class Array:
    """Shape and type of an operand or a result.

    Attributes:
        dims: elements along each dimension.
        dtype: of the elements; jax's narrow types (bfloat16, float8) are numpy extension types.
    """

    dims: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        """As jax writes it: float32[4,8]."""
        return f"{self.dtype.name}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Operation:
    """One equation of a traced program, at the point where jax lowers it.

    Attributes:
        primitive: name of the primitive, such as ``conv_general_dilated``.
        operands: what it reads.
        results: what it makes.
        params: parameters of the equation, as jax hands them to the lowering rule.
        in_loop: it stands in the body of a loop.
        in_body: it, or one of the same types, stands in the body of a loop or the branch of a conditional.
        reduced: nothing but reductions reads what is made of it, by operations of XLA's kernel library.
        sliced: only parts of it are read.
    """

    primitive: str
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    params: Mapping[str, Any]
    in_loop: bool = False
    in_body: bool = False
    reduced: bool = False
    sliced: bool = False

    def __str__(self) -> str:
        """One line for reports."""
        return f"{self.primitive}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Times:
    """Estimates for one operation, in nanoseconds on the cores of this machine.

    Attributes:
        default_ns: as XLA computes it by itself.
        form_ns: in the form.
    """

    default_ns: float
    form_ns: float


@dataclass(frozen=True)
class Form:
    """One row of the table.

    Attributes:
        name: for reports, switches and documents.
        primitives: names of the primitives that it can compute.
        summary: what is computed instead, for people.
        forbids: the name of the rule that forbids it for an operation, or None.
        times: what XLA's way and the form take, from facts of the machine.
        compute: the form in jax: (operation, operands) -> results.
        exact: results are bit-equal to XLA's; otherwise see `accuracy`.
        accuracy: how far results may be from XLA's, for people; empty for exact forms.
        apart: its result stands in a kernel of its own, but in loops. What reads it would compute its simple
            operations anew, and may be no vector code: that takes up to ten times as long, the trip through
            memory up to 1.25 times. In loops kernels are best joined.
        joined: those of its primitives that do not stand apart all the same: XLA chooses between the form and
            its own way, which is joined with what reads it if it is chosen.
        unlike: names of rules that say that an operation is of another kind: no report tells of it.
        by_body: what XLA's way takes depends on `Operation.in_body`.
        of_program: it holds equations of the program, which are lowered in their own best forms.
    """

    name: str
    primitives: tuple[str, ...]
    summary: str
    forbids: Callable[[Operation], str | None]
    times: Callable[[Operation, CpuCosts], Times]
    compute: Callable[[Operation, Sequence[Any]], Sequence[Any]]
    exact: bool
    accuracy: str = ""
    apart: bool = False
    joined: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
    by_body: bool = False
    of_program: bool = False

    def stands_apart(self, operation: Operation) -> bool:
        """Whether the result of an operation is kept in a kernel of its own."""
        return self.apart and operation.primitive not in self.joined and not operation.in_loop
