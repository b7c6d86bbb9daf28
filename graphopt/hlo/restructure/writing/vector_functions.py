"""Functions as arithmetic on arrays.

XLA writes a function as a call, which LLVM counts as one instruction: loops of few elements are unrolled in
full, into scalar code. Arithmetic is long enough to stay a loop, and becomes vector code (`LENGTHS`). The
polynomials are those of the Cephes library (S. Moshier), which XLA's own code uses, and of fdlibm; results
differ from XLA's by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, array_shape

_LOG2E: Final = 1.44269504088896341


@dataclass(frozen=True)
class _Format:
    """A type of floats, and what its functions need.

    Attributes:
        dtype: of the floats.
        whole: of whole numbers of as many bits.
        digits: bits of the mantissa that are stored.
        bias: of the exponent.
        least: smallest normal number: XLA takes smaller ones for zeros.
        ln2: logarithm of two, in two parts: of few digits, and the rest.
        low: exponentials of smaller numbers are zero.
        high: exponentials of larger numbers are infinite.
        none: exponentials of smaller numbers, less one, are -1 to rounding.
        near: smaller numbers are their exponential less one, and their hyperbolic tangent.
        exp: polynomial of ``(exp(x) - 1 - x) / x**2``, the highest power first.
    """

    dtype: DType
    whole: DType
    digits: int
    bias: int
    least: float
    ln2: tuple[float, float]
    low: float
    high: float
    none: float
    near: float
    exp: tuple[float, ...]

    @property
    def magic(self) -> float:
        """A small number added to it is rounded to a whole one, which its last bits hold."""
        return 1.5 * 2.0**self.digits

    @property
    def magic_bits(self) -> int:
        """The bits of `magic`."""
        return (self.bias + self.digits << self.digits) + (1 << self.digits - 1)


_SINGLE: Final = _Format(
    DType.F32, DType.S32, 23, 127, 1.17549435e-38, (0.693359375, -2.12194440e-4),
    -104.0, 89.0, -25.0, 1e-8,
    (
        1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
        5.0000001201e-1,
    ),
)  # fmt: skip
_DOUBLE: Final = _Format(
    DType.F64, DType.S64, 52, 1023, 2.2250738585072014e-308,
    (6.93147180369123816490e-01, 1.90821492927058770002e-10), -746.0, 710.0, -50.0, 1e-17,
    tuple(1.0 / math.factorial(n) for n in range(13, 1, -1)),
)  # fmt: skip
_FORMATS: Final = MappingProxyType({f.dtype: f for f in (_SINGLE, _DOUBLE)})

_LOG: Final = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG_RATIO: Final = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip
"""Of ``x = m / (2 + m)``: the logarithm of ``1 + m`` (fdlibm, Sun Microsystems)."""

_TANH: Final = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_BELOW: Final = (
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03,
)  # fmt: skip
_TANH_FAR: Final = 7.99881172180175781
"""From here on, the result is one to rounding of single precision."""
_TANH_NEAR: Final = 0.0004
"""Up to here, it is the argument."""


class _Writer:
    """Arithmetic of arrays of one shape, with numbers as operands."""

    def __init__(self, block: Block, like: Value) -> None:
        self.block = block
        self.dims = like.dims
        self.format = _FORMATS[DType(like.dtype)]
        self._numbers: dict[tuple[int, float], Value] = {}

    def number(self, value: float, dtype: int | None = None) -> Value:
        """An array of one number; a float if no type is given."""
        key = (self.format.dtype if dtype is None else dtype), value
        if key not in self._numbers:
            self._numbers[key] = self.block.full(*key, self.dims)
        return self._numbers[key]

    def op(self, opcode: str, *operands: Value | float) -> Value:
        """An operation on floats."""
        return self.block.op(opcode, *(self._value(x) for x in operands))

    def bits(self, opcode: str, x: Value, number: int) -> Value:
        """An operation with a whole number."""
        return self.block.op(opcode, x, self.number(number, self.format.whole))

    def where(self, a: Value, direction: str, b: float, yes: Value | float, no: Value) -> Value:
        """`yes` where a comparison holds, else `no`."""
        holds = self.block.compare(direction, a, self.number(b))
        return self.block.op("select", holds, self._value(yes), no)

    def as_whole(self, x: Value) -> Value:
        """The bits of floats."""
        shape = array_shape(self.format.whole, self.dims)
        return self.block.add("bitcast-convert", shape, (x,))

    def as_floats(self, x: Value) -> Value:
        """Floats of these bits."""
        shape = array_shape(self.format.dtype, self.dims)
        return self.block.add("bitcast-convert", shape, (x,))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule, the highest power first."""
        total: Value = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self.op("add", self.op("multiply", total, x), coefficient)
        return total

    def power_of_two(self, exponent: Value) -> Value:
        """Two to a whole power, that of a normal number."""
        biased = self.bits("add", exponent, self.format.bias)
        return self.as_floats(self.bits("shift-left", biased, self.format.digits))

    def _value(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else self.number(x)


def _clamped(w: _Writer, x: Value, low: float, high: float) -> Value:
    return w.op("minimum", w.op("maximum", x, low), high)


def _reduced(w: _Writer, x: Value) -> tuple[Value, Value]:
    """A whole power of two, and what is left of the argument of an exponential."""
    shifted = w.op("add", w.op("multiply", x, _LOG2E), w.format.magic)
    whole = w.op("subtract", shifted, w.format.magic)
    rest = x
    for part in w.format.ln2:
        rest = w.op("subtract", rest, w.op("multiply", whole, part))
    return w.bits("subtract", w.as_whole(shifted), w.format.magic_bits), rest


def _grown(w: _Writer, rest: Value) -> Value:
    """Exponential minus one of a small number."""
    square = w.op("multiply", rest, rest)
    return w.op("add", w.op("multiply", w.polynomial(rest, w.format.exp), square), rest)


def _exponential(w: _Writer, x: Value) -> Value:
    """The power of two is applied in two halves, which reaches infinity and zero."""
    whole, rest = _reduced(w, _clamped(w, x, w.format.low, w.format.high))
    # Halved as a positive number: vectors of long numbers have no arithmetic shift.
    even = 2 * w.format.bias
    half = w.bits("shift-right-logical", w.bits("add", whole, even), 1)
    half = w.bits("subtract", half, even // 2)
    grown = w.op("add", _grown(w, rest), 1.0)
    grown = w.op("multiply", grown, w.power_of_two(half))
    return w.op("multiply", grown, w.power_of_two(w.op("subtract", whole, half)))


def _exponential_minus_one(w: _Writer, x: Value) -> Value:
    """With half of the power of two, as the whole may be infinite."""
    whole, rest = _reduced(w, _clamped(w, x, w.format.none, w.format.high))
    scale = w.power_of_two(w.bits("subtract", whole, 1))
    half = w.op("add", w.op("multiply", _grown(w, rest), scale), w.op("subtract", scale, 0.5))
    return w.where(w.block.op("abs", x), "LT", w.format.near, x, w.op("add", half, half))


def _log(w: _Writer, x: Value) -> Value:
    whole, near = _split(w, x)
    by_type = _log_of_single if w.format is _SINGLE else _log_of_double
    total = w.where(x, "EQ", math.inf, x, by_type(w, whole, near))
    total = w.where(x, "GE", w.format.least, total, w.number(-math.inf))
    return w.where(x, "GE", 0.0, total, w.number(math.nan))


def _split(w: _Writer, x: Value) -> tuple[Value, Value]:
    """A power of two (float), and one less than what it is multiplied with: from sqrt(1/2) to sqrt(2)."""
    digits, bias = w.format.digits, w.format.bias
    bits = w.as_whole(w.op("maximum", x, w.format.least))
    # As the last bits of a large number: vectors of long numbers are not converted.
    large = bias + digits << digits
    exponent = w.bits("or", w.bits("shift-right-logical", bits, digits), large)
    whole = w.op("subtract", w.as_floats(exponent), 2.0**digits + bias - 1)
    mantissa = w.bits("and", bits, (1 << digits) - 1)
    part = w.as_floats(w.bits("or", mantissa, bias - 1 << digits))
    root = math.sqrt(0.5)
    whole = w.where(part, "LT", root, w.op("subtract", whole, 1.0), whole)
    return whole, w.op("subtract", w.where(part, "LT", root, w.op("add", part, part), part), 1.0)


def _log_of_single(w: _Writer, whole: Value, near: Value) -> Value:
    square = w.op("multiply", near, near)
    total = w.op("multiply", w.op("multiply", w.polynomial(near, _LOG), near), square)
    total = w.op("add", total, w.op("multiply", whole, w.format.ln2[1]))
    total = w.op("subtract", total, w.op("multiply", square, 0.5))
    return w.op("add", w.op("add", near, total), w.op("multiply", whole, w.format.ln2[0]))


def _log_of_double(w: _Writer, whole: Value, near: Value) -> Value:
    ratio = w.op("divide", near, w.op("add", near, 2.0))
    square = w.op("multiply", ratio, ratio)
    tail = w.op("multiply", w.polynomial(square, _LOG_RATIO), square)
    half = w.op("multiply", w.op("multiply", near, near), 0.5)
    low = w.op("multiply", whole, w.format.ln2[1])
    low = w.op("add", w.op("multiply", ratio, w.op("add", half, tail)), low)
    rest = w.op("subtract", w.op("subtract", half, low), near)
    return w.op("subtract", w.op("multiply", whole, w.format.ln2[0]), rest)


def _log_plus_one(w: _Writer, x: Value) -> Value:
    """What the addition of one loses is made good (W. Kahan)."""
    moved = w.op("add", x, 1.0)
    lost = w.op("subtract", x, w.op("subtract", moved, 1.0))
    log = _log(w, moved)
    total = w.op("add", log, w.op("divide", lost, moved))
    total = w.where(moved, "GT", 0.0, w.where(moved, "EQ", math.inf, x, total), log)
    return w.where(moved, "EQ", 1.0, x, total)


def _logistic(w: _Writer, x: Value) -> Value:
    below = w.op("add", _exponential(w, w.block.op("negate", x)), 1.0)
    return w.op("divide", 1.0, below)


def _tanh(w: _Writer, x: Value) -> Value:
    """A quotient of polynomials, as in XLA and Eigen; in double precision by the exponential."""
    if w.format is _DOUBLE:
        grown = _exponential_minus_one(w, _clamped(w, w.op("add", x, x), -50.0, 50.0))
        return w.op("divide", grown, w.op("add", grown, 2.0))
    near = _clamped(w, x, -_TANH_FAR, _TANH_FAR)
    square = w.op("multiply", near, near)
    above = w.op("multiply", near, w.polynomial(square, _TANH))
    ratio = w.op("divide", above, w.polynomial(square, _TANH_BELOW))
    size = w.block.op("abs", x)
    far = w.where(size, "GT", _TANH_FAR, w.block.op("sign", x), ratio)
    return w.where(size, "LT", _TANH_NEAR, x, far)


_FUNCTIONS: Final[MappingProxyType[str, Callable[[_Writer, Value], Value]]] = MappingProxyType(
    {
        "exponential": _exponential,
        "exponential-minus-one": _exponential_minus_one,
        "log": _log,
        "log-plus-one": _log_plus_one,
        "logistic": _logistic,
        "tanh": _tanh,
    }
)

LENGTHS: Final[MappingProxyType[str, MappingProxyType[int, int]]] = MappingProxyType(
    {
        name: MappingProxyType({DType.F32: single, DType.F64: 8})
        for name, single in (
            ("exponential", 16),
            ("exponential-minus-one", 16),
            ("log", 8),
            ("log-plus-one", 8),
            ("logistic", 16),
            ("tanh", 16),
        )
    }
)
"""Function -> type -> elements from which on LLVM makes a loop of its arithmetic, and then vector code."""


def write_function(block: Block, opcode: str, x: Value) -> Value:
    """A function of `LENGTHS` of an array, as arithmetic."""
    return _FUNCTIONS[opcode](_Writer(block, x), x)
