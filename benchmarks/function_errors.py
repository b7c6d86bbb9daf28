"""Largest errors of functions: in their form, and as XLA computes them by itself.

Arguments of single precision are floats taken at equal distances among all of a range, by their bits, so that
every exponent has its share; those of double precision are drawn, half with exponents alike, half near one.
The second argument of a function of two is made for each so that results fall everywhere.
The true value is computed in extended precision. Denormal numbers, which XLA takes for zeros, are left out
as arguments and as results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from benchmarks.progress import counted
from graphopt import forms
from graphopt.forms.doubles.circular import FARTHEST

Floats = NDArray[Any]
Extended = NDArray[np.longdouble]

CHUNK: Final = 1 << 20
_PI: Final = np.longdouble("3.14159265358979323846264338327950288")
_FAR: Final = 24
"""Series of Stirling's kind are taken from here on: their last term is below 2^-64."""
_BERNOULLI: Final = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798),
    (-174611, 330),
)  # fmt: skip
"""Numerators and denominators of the Bernoulli numbers B2, B4 ..."""


def _moved_far(a: Extended, none: float) -> tuple[Extended, list[Extended]]:
    """Numbers above zero moved up by whole steps to `_FAR` or more, and the places passed; else `none`."""
    passed = []
    for _ in range(_FAR):
        near = a < _FAR
        passed.append(np.where(near, a, np.longdouble(none)))
        a = np.where(near, a + 1, a)
    return a, passed


def _power(x: Extended, times: int) -> Extended:
    """`x` multiplied with itself, which is quicker than a power."""
    half = np.ones_like(x) if times < 2 else _power(x * x, times // 2)
    return half * x if times % 2 else half


def _turned(x: Extended) -> tuple[Extended, Extended]:
    """Sine and cosine of pi x."""
    rest = x - np.round(x)
    return np.sin(_PI * rest), np.cos(_PI * rest)


def log_gamma(x: Extended) -> Extended:
    """log |gamma(x)|, by Stirling's series and reflection."""
    a, passed = _moved_far(np.abs(x), 1.0)
    value: Extended = (a - 0.5) * np.log(a) - a + np.log(2 * _PI) / 2
    for k, (above, below) in enumerate(_BERNOULLI, 1):
        value += np.longdouble(above) / below / (2 * k * (2 * k - 1)) * _power(1 / a, 2 * k - 1)
    value = value - np.log(np.prod(passed, axis=0))
    value = np.where((x == 1) | (x == 2), 0, value)
    reflected = np.log(_PI) - np.log(np.abs(x * _turned(x)[0])) - value
    value = np.where(x < 0, reflected, value)
    return value


def digamma(x: Extended) -> Extended:
    """The derivative of log gamma."""
    a, passed = _moved_far(np.where(x < 0, 1 - x, x), np.inf)
    value: Extended = np.log(a) - 1 / (2 * a)
    for k, (above, below) in enumerate(_BERNOULLI, 1):
        value -= np.longdouble(above) / below / (2 * k) * _power(1 / a, 2 * k)
    value = value - sum(1 / place for place in passed)
    sine, cosine = _turned(x)
    value = np.where(x < 0, value - _PI * cosine / sine, value)
    return value


def _log_uniform(x: Floats, rng: np.random.Generator, low: float, high: float) -> Floats:
    """Numbers of either sign that are `x` times powers of two."""
    factors = np.exp2(rng.uniform(low, high, x.shape)) * rng.choice([-1.0, 1.0], x.shape)
    largest = float(np.finfo(x.dtype).max)
    with np.errstate(over="ignore"):
        return np.clip(x.astype(np.float64) * factors, -largest, largest).astype(x.dtype)


def _exponents(x: Floats, rng: np.random.Generator) -> Floats:
    """Exponents whose powers of `x` are of every size; whole ones for negative numbers."""
    log = np.log2(np.abs(x.astype(np.float64)))
    y = rng.uniform(-126, 128, x.shape) / np.where(log == 0, 1.0, log)
    return np.where(x < 0, np.round(y), y).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A function and a range of its arguments.

    Attributes:
        name: of the primitive.
        true: the function in extended precision.
        low: least argument.
        high: largest argument.
        second: makes the second argument of a function of two from the first.
    """

    name: str
    true: Callable[..., Extended]
    low: float = -np.inf
    high: float = np.inf
    second: Callable[[Floats, np.random.Generator], Floats] | None = None


CASES: Final = (
    Case("acos", np.arccos, -1.0, 1.0),
    Case("asin", np.arcsin, -1.0, 1.0),
    Case("atan", np.arctan),
    Case("atan2", np.arctan2, second=lambda x, rng: _log_uniform(x, rng, -30, 30)),
    Case("cbrt", np.cbrt),
    Case("cos", np.cos),
    Case("digamma", digamma, 0.0),
    Case("digamma", digamma, -100.0, 0.0),
    Case("lgamma", log_gamma, 0.0),
    Case("lgamma", log_gamma, -100.0, 0.0),
    Case("pow", np.power, second=_exponents),
    Case("sin", np.sin),
    Case("tan", np.tan),
)
"""What is measured, in this order."""

DOUBLE_CASES: Final = (
    Case("acos", np.arccos, -1.0, 1.0),
    Case("acosh", np.arccosh, 1.0),
    Case("asin", np.arcsin, -1.0, 1.0),
    Case("asinh", np.arcsinh),
    Case("atan", np.arctan),
    Case("atan2", np.arctan2, second=lambda x, rng: _log_uniform(x, rng, -60, 60)),
    Case("atanh", np.arctanh, -1.0, 1.0),
    Case("cbrt", np.cbrt),
    Case("cos", np.cos, -FARTHEST, FARTHEST),
    Case("log", np.log, 0.0),
    Case("log1p", np.log1p, -1.0),
    Case("sin", np.sin, -FARTHEST, FARTHEST),
    Case("tan", np.tan, -FARTHEST, FARTHEST),
)
"""The same of double precision."""
_EXPONENTS: Final = (-60.0, 1000.0)
"""Least and largest of the exponents to base two that are drawn."""


@dataclass(frozen=True)
class Error:
    """The largest error of a function in units of the last place.

    Attributes:
        units: how large.
        at: the argument or arguments.
    """

    units: float = 0.0
    at: tuple[float, ...] = ()


def arguments(case: Case, every: int) -> Iterator[tuple[Floats, ...]]:
    """Every so-manieth float of a case's range, in chunks, each with its second argument."""
    rng = np.random.default_rng(0)
    for first in range(0, 1 << 32, every * CHUNK):
        bits = np.arange(first, min(first + every * CHUNK, 1 << 32), every, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        x = x[(x >= case.low) & (x <= case.high) & (np.abs(x) >= np.finfo(x.dtype).tiny)]
        x = x[np.isfinite(x)]
        if x.size:
            yield (x,) if case.second is None else (x, case.second(x, rng))


def doubles(case: Case, chunks: int) -> Iterator[tuple[Floats, ...]]:
    """Numbers of double precision of a case's range, in chunks, each with its second argument."""
    rng = np.random.default_rng(0)
    lowest, highest = _EXPONENTS
    highest = min(highest, float(np.log2(case.high)))
    for _ in range(chunks):
        spread = np.exp2(rng.uniform(lowest, highest, CHUNK)) * rng.choice([-1.0, 1.0], CHUNK)
        near = rng.choice([-1.0, 1.0], CHUNK) * (1 - np.exp2(rng.uniform(-50, 0, CHUNK)))
        x = np.concatenate([spread, near])
        x = x[(x >= case.low) & (x <= case.high)]
        yield (x,) if case.second is None else (x, case.second(x, rng))


def largest(case: Case, computed: Any, args: tuple[Floats, ...]) -> Error:
    """The largest error among results, denormal and infinite true values apart."""
    with np.errstate(all="ignore"):
        true = case.true(*[a.astype(np.longdouble) for a in args])
        rounded = true.astype(args[0].dtype)
        kind = np.finfo(rounded.dtype)
        counts = np.isfinite(rounded) & (np.abs(rounded) >= kind.tiny)
        place = np.frexp(rounded)[1] - kind.nmant - 1
        units = np.abs(computed - true) / np.ldexp(np.longdouble(1), place)
    units = np.where(counts, np.where(np.isnan(units), np.inf, units), 0)
    place = int(np.argmax(units))
    return Error(float(units[place]), tuple(float(a[place]) for a in args))


def measure(case: Case, chosen_among: Iterator[tuple[Floats, ...]]) -> tuple[int, Error, Error]:
    """Arguments tried, and the largest errors of the form and of XLA's way."""
    function = getattr(lax, case.name)
    count, ours, default = 0, Error(), Error()
    with forms.enabled(always=True) as chosen:
        form = jax.jit(lambda *a: function(*a))
        for args in chosen_among:
            count += len(args[0])
            ours = max(ours, largest(case, np.asarray(form(*args)), args), key=lambda e: e.units)
            with forms.disabled():
                found = np.asarray(jax.jit(lambda *a: function(*a))(*args))
            default = max(default, largest(case, found, args), key=lambda e: e.units)
    if not chosen:
        raise RuntimeError(f"no form computes {case.name}")
    return count, ours, default


def table(every: int, only: str = "", *, double: bool = False) -> Iterator[str]:
    """Lines of a Markdown table.

    Args:
        every: distance of the floats that are tried.
        only: how names begin.
        double: functions of double precision, as many numbers.
    """
    yield "| function | arguments | numbers | form | form, at | XLA | XLA, at |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    chunks = -(-(1 << 32) // (2 * every * CHUNK))
    with counted(DOUBLE_CASES if double else CASES, "functions tried") as rest:
        for case in rest:
            if case.name.startswith(only):
                tried = doubles(case, chunks) if double else arguments(case, every)
                count, ours, default = measure(case, tried)
                span = (
                    "all" if case.low == -case.high == -np.inf else f"{case.low:g} to {case.high:g}"
                )
                cells = [case.name, span, f"{count:,}"]
                for error in (ours, default):
                    cells += [f"{error.units:.4g}", ", ".join(f"{a:.9g}" for a in error.at)]
                yield f"| {' | '.join(cells)} |"
