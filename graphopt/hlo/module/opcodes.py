"""The table of HLO operations: what each one is, and where XLA:CPU can compute it.

One row per opcode. Everything else in the package asks this table instead of comparing opcode
strings. Sources: XLA's CPU fusion emitters and thunk emitter as measured on jaxlib 0.10.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from graphopt.hlo.module.proto import DType


class OpKind(IntEnum):
    """How an operation reads its operands."""

    STRUCTURE = 0
    """No computation: parameter, constant, tuple, get-tuple-element, bitcast ..."""
    ELEMENTWISE = 1
    """Output element i reads element i of every operand."""
    INDEXED = 2
    """Each output element reads at most one element of each operand, at another index."""
    REDUCING = 3
    """Each output element reads many operand elements."""
    CONTROL = 4
    """Calls computations: while, conditional, call."""
    RUNTIME = 5
    """Computed by a runtime call or an emitter of its own: dot, sort, custom-call ..."""


@dataclass(frozen=True)
class Op:
    """One row of the table.

    Attributes:
        name: HLO opcode as printed.
        code: position in `OPS`; the integer that `Graph.opcode` holds.
        kind: how operands are read.
        fusible: may sit inside a loop fusion.
        regional: may sit inside a native region (one function emitted for many operations).
        expensive: XLA's own fusion pass never recomputes it (``IsExpensive``).
        cost: rough cost of one output element, in additions.
    """

    name: str
    code: int
    kind: OpKind
    fusible: bool
    regional: bool
    expensive: bool
    cost: float


_CHEAP_ELEMENTWISE = (
    "abs add and bitcast-convert clamp compare complex convert imag is-finite maximum minimum "
    "multiply negate not or real reduce-precision select shift-left shift-right-arithmetic "
    "shift-right-logical sign subtract xor count-leading-zeros popcnt ceil floor round-nearest-afz "
    "round-nearest-even"
).split()
_COSTLY_ELEMENTWISE: dict[str, float] = {
    "divide": 4, "remainder": 6, "sqrt": 4, "rsqrt": 5, "exponential": 10, "exponential-minus-one": 14,
    "log": 12, "log-plus-one": 14, "tanh": 14, "logistic": 12, "sine": 20, "cosine": 20, "tan": 24,
    "power": 30, "cbrt": 25, "atan2": 30, "erf": 16, "asin": 30, "acos": 30, "asinh": 30,
    "acosh": 30, "atanh": 30, "sinh": 20, "cosh": 20,
}  # fmt: skip
_CHEAP_TRIGONOMETRY = frozenset({"sine", "cosine", "tan"})
"""XLA counts these among the operations that it may recompute."""

_COLLECTIVES = (
    "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all "
    "reduce-scatter"
).split()

_ROWS: list[tuple[str, OpKind, bool, bool, bool, float]] = [
    ("parameter", OpKind.STRUCTURE, False, True, False, 0.0),
    ("constant", OpKind.STRUCTURE, True, True, False, 0.0),
    ("tuple", OpKind.STRUCTURE, False, True, False, 0.0),
    ("get-tuple-element", OpKind.STRUCTURE, False, True, False, 0.0),
    ("bitcast", OpKind.INDEXED, True, True, False, 0.0),
    *((name, OpKind.ELEMENTWISE, True, True, False, 1.0) for name in _CHEAP_ELEMENTWISE),
    *(
        (name, OpKind.ELEMENTWISE, True, True, name not in _CHEAP_TRIGONOMETRY, cost)
        for name, cost in _COSTLY_ELEMENTWISE.items()
    ),
    ("copy", OpKind.ELEMENTWISE, True, True, False, 1.0),
    ("broadcast", OpKind.INDEXED, True, True, False, 0.5),
    ("iota", OpKind.INDEXED, True, True, False, 0.5),
    ("reshape", OpKind.INDEXED, True, True, False, 0.5),
    ("transpose", OpKind.INDEXED, True, True, False, 1.0),
    ("reverse", OpKind.INDEXED, True, True, False, 1.0),
    ("slice", OpKind.INDEXED, True, True, False, 0.5),
    ("pad", OpKind.INDEXED, True, True, False, 2.0),
    ("concatenate", OpKind.INDEXED, True, True, False, 2.0),
    ("dynamic-slice", OpKind.INDEXED, True, True, False, 1.5),
    ("dynamic-update-slice", OpKind.INDEXED, True, True, False, 2.0),
    ("gather", OpKind.INDEXED, True, True, True, 4.0),
    ("reduce", OpKind.REDUCING, True, True, True, 1.0),
    ("reduce-window", OpKind.REDUCING, True, True, True, 1.5),
    ("while", OpKind.CONTROL, False, True, True, 0.0),
    ("conditional", OpKind.CONTROL, False, True, True, 0.0),
    ("call", OpKind.CONTROL, False, True, True, 0.0),
    ("fusion", OpKind.RUNTIME, False, True, True, 0.0),
    ("dot", OpKind.RUNTIME, False, True, True, 1.0),
    ("map", OpKind.RUNTIME, False, False, True, 1.0),
    ("convolution", OpKind.RUNTIME, False, False, True, 1.0),
    ("select-and-scatter", OpKind.RUNTIME, False, False, True, 1.0),
    ("scatter", OpKind.RUNTIME, False, False, True, 4.0),
    ("sort", OpKind.RUNTIME, False, False, True, 8.0),
    ("fft", OpKind.RUNTIME, False, False, True, 8.0),
    ("custom-call", OpKind.RUNTIME, False, False, True, 1.0),
    ("rng", OpKind.RUNTIME, False, False, True, 8.0),
    ("rng-bit-generator", OpKind.RUNTIME, False, False, True, 8.0),
    ("rng-get-and-update-state", OpKind.RUNTIME, False, False, True, 1.0),
    ("after-all", OpKind.RUNTIME, False, False, True, 0.0),
    ("add-dependency", OpKind.RUNTIME, False, False, True, 0.0),
    ("infeed", OpKind.RUNTIME, False, False, True, 0.0),
    ("outfeed", OpKind.RUNTIME, False, False, True, 0.0),
    # XLA takes barriers out of every computation after its compiler has asked for decisions.
    ("opt-barrier", OpKind.STRUCTURE, False, True, True, 0.0),
    ("topk", OpKind.RUNTIME, False, False, True, 8.0),
    ("cholesky", OpKind.RUNTIME, False, False, True, 8.0),
    ("triangular-solve", OpKind.RUNTIME, False, False, True, 8.0),
    ("batch-norm-inference", OpKind.RUNTIME, False, False, True, 4.0),
    ("stochastic-convert", OpKind.RUNTIME, False, False, True, 2.0),
    *((name, OpKind.RUNTIME, False, False, True, 1.0) for name in _COLLECTIVES),
    ("partition-id", OpKind.RUNTIME, False, False, False, 0.0),
    ("replica-id", OpKind.RUNTIME, False, False, False, 0.0),
]

OPS: Final[tuple[Op, ...]] = tuple(Op(row[0], i, *row[1:]) for i, row in enumerate(_ROWS))
"""All rows, by code."""

OP_BY_NAME: Final[dict[str, Op]] = {op.name: op for op in OPS}

COLLECTIVES: Final = frozenset(_COLLECTIVES)
"""Opcodes in which several devices take part: each waits for the others, so all keep one order."""

ASYNCHRONOUS_OPS: Final = frozenset(
    "send send-done recv recv-done async-start async-update async-done all-reduce-start "
    "all-reduce-done all-gather-start all-gather-done collective-permute-start "
    "collective-permute-done copy-start copy-done domain".split()
)
"""Opcodes that go on beside others; XLA:CPU writes none of them, and modules with one are left alone."""

SIDE_EFFECTS: Final = COLLECTIVES | frozenset(
    "infeed outfeed custom-call after-all rng rng-bit-generator rng-get-and-update-state "
    "add-dependency while conditional call".split()
)
"""Opcodes that are neither merged with an equal one nor dropped when unused."""

NATIVE_PRODUCT_DTYPES: Final = frozenset(
    DType[name] for name in "PRED S8 U8 S16 U16 S32 U32 S64 U64 F16 F32 F64 C64 C128".split()
)
"""What XLA:CPU's native code multiplies; it refuses to compile products of other types."""


def is_native_product(types: Iterable[int]) -> bool:
    """True if native code can compute a dot whose operands and result have these types.

    With several types its code is not valid LLVM.
    """
    found = set(types)
    return len(found) == 1 and found <= NATIVE_PRODUCT_DTYPES
