"""Execution units as data: what each can compute, and on how many threads.

Mapping a graph to a machine is matching its nodes against these tables, so that a new library or
device is a new entry here and nothing else. Operations are HLO opcodes and types are HLO primitive
type names, both as HLO text spells them. The tables hold what XLA:CPU of jaxlib 0.10.2 takes; the
legality rules may forbid more (shapes, layouts, combinations), never less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from graphopt.errors import ConfigError


class UnitKind(StrEnum):
    """The ways in which XLA:CPU executes a cluster."""

    LOOP = "loop"
    """A kernel from XLA's loop code generator, its outer dimensions split over threads."""
    LIBRARY = "library"
    """A subgraph handed to the YNN kernel library."""
    RUNTIME = "runtime"
    """One call of a routine in the runtime."""
    NATIVE = "native"
    """Part of a native region: emitted, control flow included, into one function."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One execution unit.

    Attributes:
        name: unique within a machine.
        kind: how the unit executes.
        threads: the most threads it uses at once, at least 1.
        ops: the HLO opcodes it can compute.
        dtypes: the element types of the arrays it can read and write.
        max_outputs: the most arrays one cluster may produce there; None where no limit is known.
        description: one line for reports.
    """

    name: str
    kind: UnitKind
    threads: int
    ops: frozenset[str]
    dtypes: frozenset[str]
    max_outputs: int | None
    description: str

    def __post_init__(self) -> None:
        if self.threads < 1 or (self.max_outputs is not None and self.max_outputs < 1):
            raise ConfigError(
                what=f"{self.threads} threads, {self.max_outputs} outputs; each must be at least 1",
                where=f"execution unit {self.name}",
                fix="Correct the entry that describes this unit.",
            )

    def supports(self, op: str, dtype: str) -> bool:
        """Return whether the unit can compute `op` on elements of type `dtype`."""
        return op in self.ops and dtype in self.dtypes


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def unit_index(units: Sequence[Unit], kind: UnitKind) -> int:
    """The number of the first unit of a kind; every machine has one of each."""
    return next(i for i, unit in enumerate(units) if unit.kind is kind)


# Element types.

DTYPES = _names(
    "pred s2 s4 s8 s16 s32 s64 u4 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128 "
    "f4e2m1fn f8e3m4 f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu"
)
"""What XLA's own code generators take; they compute the narrowest types in wider ones."""

# The YNN kernel library.

LIBRARY_UNARY = _names(
    "abs ceil convert erf exponential exponential-minus-one floor log log-plus-one logistic "
    "negate round-nearest-even rsqrt sign sqrt tanh"
)
"""No sine, cosine or tangent: jaxlib 0.10.2 compiles them and fails when they run."""
LIBRARY_BINARY = _names("add divide maximum minimum multiply power subtract")
"""No comparison, selection or logic: compare, select, and, is-finite and clamp are not there."""
LIBRARY_SHAPE = _names("bitcast broadcast constant iota pad reshape transpose")
LIBRARY_REDUCE = _names("reduce reduce-window")
LIBRARY_CONTRACT = _names("convolution dot")
LIBRARY_OPS = LIBRARY_UNARY | LIBRARY_BINARY | LIBRARY_SHAPE | LIBRARY_REDUCE | LIBRARY_CONTRACT

LIBRARY_REDUCERS = _names("add maximum minimum")
"""What a reduction may combine elements with."""
LIBRARY_ELEMENTWISE_DTYPES = _names("bf16 f32 f64 s8 u8")
LIBRARY_DOT_DTYPES: frozenset[tuple[str, str, str]] = frozenset(
    {
        ("f32", "f32", "f32"),
        ("f64", "f64", "f64"),
        ("bf16", "bf16", "f32"),
        ("bf16", "bf16", "bf16"),
        ("s8", "s8", "s32"),
        ("u8", "s8", "s32"),
    }
)
"""The element types of a dot, as (left operand, right operand, result)."""
LIBRARY_DTYPES = LIBRARY_ELEMENTWISE_DTYPES | {result for _, _, result in LIBRARY_DOT_DTYPES}
LIBRARY_MIN_DOT_DIMENSION = 8
"""Some dimension of a dot must be at least this long; a matrix-vector product never qualifies."""
LIBRARY_PREFERRED_ELEMENTS = 4096
"""XLA hands over only subgraphs with an array of at least this size: its habit, not a limit."""

# XLA's code generators.

ELEMENTWISE_OPS = _names(
    "abs acos acosh add and asin asinh atan2 atanh bitcast-convert cbrt ceil clamp compare "
    "complex convert copy cosh cosine count-leading-zeros divide erf exponential "
    "exponential-minus-one floor imag is-finite log "
    "log-plus-one logistic maximum minimum multiply negate not or popcnt power real "
    "reduce-precision remainder round-nearest-afz round-nearest-even rsqrt select shift-left "
    "shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan tanh xor"
)
MOVEMENT_OPS = _names(
    "bitcast broadcast concatenate constant dynamic-slice dynamic-update-slice gather iota pad "
    "reshape reverse slice transpose"
)
REDUCE_OPS = _names("reduce reduce-window")
LOOP_OPS = ELEMENTWISE_OPS | MOVEMENT_OPS | REDUCE_OPS
"""Leaves out dot, which a loop kernel computes correctly but some 60 times slower than a call."""
LOOP_MAX_OUTPUTS = 64
"""The largest output count tried; XLA sets no limit of its own."""

RUNTIME_OPS = _names("convolution custom-call dot fft sort")

CONTROL_OPS = _names("call conditional get-tuple-element tuple while")
NATIVE_OPS = LOOP_OPS | CONTROL_OPS | _names("convolution dot fusion")
NATIVE_REFUSED_OPS = _names(
    "all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start "
    "all-to-all collective-broadcast collective-permute collective-permute-done "
    "collective-permute-start custom-call fft infeed outfeed partition-id ragged-all-to-all recv "
    "recv-done reduce-scatter replica-id scatter send send-done sort"
)
"""One of these anywhere inside, loops and branches included, rules out a native region."""


def cpu_units(cores: int) -> tuple[Unit, ...]:
    """Return the units of a CPU: loop@1 to loop@`cores`, then library, runtime and native."""
    if cores < 1:
        raise ConfigError(
            what=f"a machine cannot have {cores} cores",
            where="cpu_units",
            fix="Pass the number of cores that the process may use, at least 1.",
        )
    return (*(_loop_unit(threads) for threads in range(1, cores + 1)), *_shared_units(cores))


def _loop_unit(threads: int) -> Unit:
    return Unit(
        name=f"loop@{threads}",
        kind=UnitKind.LOOP,
        threads=threads,
        ops=LOOP_OPS,
        dtypes=DTYPES,
        max_outputs=LOOP_MAX_OUTPUTS,
        description=f"generated loop kernel on {threads} thread{'s' if threads > 1 else ''}",
    )


def _shared_units(cores: int) -> tuple[Unit, ...]:
    return (
        Unit(
            name="library",
            kind=UnitKind.LIBRARY,
            threads=cores,
            ops=LIBRARY_OPS,
            dtypes=LIBRARY_DTYPES,
            max_outputs=1,
            description="YNN library kernel, which picks its own thread count",
        ),
        Unit(
            name="runtime",
            kind=UnitKind.RUNTIME,
            threads=cores,
            ops=RUNTIME_OPS,
            dtypes=DTYPES,
            max_outputs=None,
            description="runtime call: matrix product, convolution, sort, FFT, custom call",
        ),
        Unit(
            name="native",
            kind=UnitKind.NATIVE,
            threads=1,
            ops=NATIVE_OPS,
            dtypes=DTYPES,
            max_outputs=None,
            description="part of one native function: no dispatch, no library, no second core",
        ),
    )
