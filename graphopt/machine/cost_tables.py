"""Tables among the costs of a machine: functions, routines and matrix products by name or element type.

Keys are names as HLO text spells them ("exponential", "f32"). One value of a table is a number of
nanoseconds, or a small record of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class LapackCosts:
    """Nanoseconds of a routine for one matrix (``python -m benchmarks.lapack``).

    Attributes:
        call: factors of 1, n, n n m and n^3 inside the call; n is the order, m the columns on the right of
            a solve, else 1.
        loop: the same of the replacement in native code.
    """

    call: tuple[float, float, float, float]
    loop: tuple[float, float, float, float]


FUNCTIONS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "atan2": (13.0, 38.0),
        "acos": (13.0, 38.0),
        "asin": (13.0, 38.0),
        "cbrt": (12.0, 17.0),
        "cosine": (2.5, 6.5),
        "erf": (0.15, 6.4),
        "exponential": (0.3, 1.4),
        "exponential-minus-one": (0.8, 2.5),
        "log": (0.6, 12.5),
        "log-plus-one": (0.7, 15.0),
        "logistic": (0.3, 1.6),
        "power": (7.0, 14.0),
        "remainder": (3.5, 4.0),
        "rsqrt": (0.2, 0.5),
        "sine": (3.6, 7.0),
        "tan": (4.7, 7.5),
        "tanh": (0.2, 0.7),
    }
)
"""Operation -> nanoseconds per element in single precision (and narrower), and in double."""

INTEGERS: Final[Mapping[str, float]] = MappingProxyType({"divide": 2.0, "remainder": 2.0})
"""The same for integers."""

TILED_FUNCTIONS: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {"rsqrt": (3.4, 3.8, 0.0)}
)
"""Operation -> nanoseconds that the tiled code generator loses for an element: single, double, integer."""

TILED_COMPLEX: Final[Mapping[str, float]] = MappingProxyType(
    {
        **dict.fromkeys(("add", "multiply", "subtract"), 0.4),
        **dict.fromkeys(("divide", "negate"), 0.2),
        **dict.fromkeys(("erf", "exponential", "exponential-minus-one", "log"), 4.0),
        **dict.fromkeys(("log-plus-one", "logistic", "tanh"), 4.0),
    }
)
"""Operation -> the same in a kernel of complex numbers, of which its code is scalar."""

LOOPED_FUNCTIONS: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "divide": (0.0, 0.0, 2.6),
        "exponential": (0.0, 0.6, 0.0),
        "exponential-minus-one": (0.0, 1.2, 0.0),
        "remainder": (0.0, 0.0, 2.6),
        "tanh": (0.1, 0.15, 0.0),
    }
)
"""The same for the loop code generator, which makes no vector code for quotients of integers."""

LOOPED_FUNCTIONS_BEFORE: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {name: (single, double, 0.0) for name, (single, double, _) in LOOPED_FUNCTIONS.items()}
)
"""The same before jaxlib 0.11, whose tiled generator is the first to make it."""

SHORT_FUNCTIONS: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = MappingProxyType(
    {
        "erf": {"f32": (2.5, 0.35)},
        "exponential": {"f32": (2.7, 0.4), "f64": (4.3, 1.2)},
        "exponential-minus-one": {"f32": (7.5, 1.0), "f64": (8.7, 2.5)},
        "log": {"f32": (4.5, 0.9), "f64": (3.1, 1.2)},
        "log-plus-one": {"f32": (9.0, 1.4), "f64": (6.5, 3.8)},
        "logistic": {"f32": (4.0, 0.5), "f64": (5.0, 1.5)},
        "tanh": {"f32": (3.2, 0.4), "f64": (3.8, 1.1)},
    }
)
"""Operation -> element type -> nanoseconds per element in arrays of 4 to 32 elements, and in long ones."""

SLOWER_PRODUCTS: Final[Mapping[str, float]] = MappingProxyType(
    {"f64": 2.0, "s64": 2.0, "c64": 4.0, "c128": 8.0}
)
"""Element type -> how many times longer a matrix product takes than in single precision."""

LAPACK: Final[Mapping[str, LapackCosts]] = MappingProxyType(
    {
        "potrf": LapackCosts(call=(40, 12, 0, 0.07), loop=(0, 8, 0, 0.87)),
        "getrf": LapackCosts(call=(40, 0, 5, 0), loop=(0, 0, 0, 2.1)),
        "trsm": LapackCosts(call=(40, 6, 0.17, 0), loop=(0, 8, 0.9, 0)),
    }
)
"""Routine -> its costs."""

PLACES: Final[dict[str, float]] = {
    "floats": 2.5, "keys": 1.0, "across": 1.8, "twice": 0.6, "short": 2.2, "short twice": 1.2,
}  # fmt: skip
"""The place of an extreme among floats by XLA, among whole numbers of rows, and across rows; the latter in
two reductions; of short rows, by XLA and in two reductions."""

WIDE_FUNCTIONS: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "acos": (9.0, 0.6, 6_000.0),
        "asin": (9.0, 0.6, 6_000.0),
        "atan": (6.0, 0.8, 6_000.0),
        "atan2": (9.5, 1.2, 8_000.0),
        "cbrt": (8.0, 0.9, 8_000.0),
        "cos": (4.6, 1.0, 90_000.0),
        "digamma": (5.5, 1.8, 12_000.0),
        "exp": (4.5, 2.4, 30_000.0),
        "lgamma": (5.5, 1.8, 12_000.0),
        "log": (12.5, 2.4, 20_000.0),
        "pow": (3.2, 1.6, 40_000.0),
        "rem": (9.5, 1.4, 20_000.0),
        "sin": (4.6, 1.0, 90_000.0),
        "tan": (8.5, 1.6, 40_000.0),
    }
)
"""Primitives of jax in single precision, exponential and logarithm of complex numbers: an element by XLA, an
element in vector code, and a start."""

DOUBLE_FUNCTIONS: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "acos": (7.0, 0.9, 30_000.0),
        "acosh": (5.5, 2.3, 40_000.0),
        "asin": (7.0, 0.9, 30_000.0),
        "asinh": (5.5, 2.6, 40_000.0),
        "atan": (4.1, 1.9, 30_000.0),
        "atan2": (7.6, 2.8, 30_000.0),
        "atanh": (5.5, 2.0, 40_000.0),
        "cbrt": (7.0, 1.6, 30_000.0),
        "cos": (4.3, 1.4, 60_000.0),
        "digamma": (14.0, 4.7, 30_000.0),
        "erf_inv": (6.5, 4.6, 30_000.0),
        "lgamma": (16.0, 5.5, 30_000.0),
        "log": (1.65, 0.95, 60_000.0),
        "log1p": (2.3, 1.0, 40_000.0),
        "rem": (6.7, 1.3, 40_000.0),
        "sin": (4.3, 1.4, 60_000.0),
        "tan": (4.7, 2.3, 60_000.0),
    }
)
"""The same in double precision."""

LIBRARY_FUNCTIONS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "cbrt": (0.6, 1.25),
        "cosine": (0.3, 0.8),
        "exponential": (0.2, 0.8),
        "exponential-minus-one": (0.35, 0.8),
        "log": (0.27, 0.9),
        "log-plus-one": (0.32, 0.95),
        "sine": (0.3, 0.8),
        "tan": (0.55, 1.25),
    }
)
"""Nanoseconds per element by the kernel library, in a kernel that ends with a reduction."""

REDUCED_FUNCTIONS: Final[Mapping[str, float]] = MappingProxyType(
    {"cos": 0.6, "log": 0.6, "log1p": 0.6, "sin": 0.6, "tan": 0.8}
)
"""Those that the kernel library computes where a reduction follows: an element of single precision, half an
element of double precision."""

CONVOLUTIONS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "product by a loop": 0.45,
        "element read along three dimensions, few channels": 11.0,
        "element read along three dimensions": 2.0,
        "element read, few channels": 1.5,
        "element read": 0.8,
        "element shifted": 0.15,
        "product of shifted elements": 0.075,
    }
)
"""What an ordinary convolution consists of -> ns: products, and elements that its windows read."""
