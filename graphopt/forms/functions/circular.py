"""Sine, cosine and tangent of single precision, in vector code of double precision.

Where all angles of an array are numbers up to `FARTHEST`, they are reduced by multiples of half a turn in two
pieces: the product of the first with the multiple is exact (Cody and Waite). Else the angle in half turns,
modulo two, is taken from seven exact products: 1 / pi is cut into pieces of 29 bits, and the product of 24
bits with 29 is exact in a double, as is its remainder by two (Payne and Hanek's reduction with fixed pieces).
So it holds for every float, without a table. All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.widening import (
    WHOLE,
    magnitude_bits,
    nearest,
    of_wide_bits,
    polynomial,
    wide_bits,
    within,
)

FARTHEST: Final = 2.0**20
"""Below it a multiple of a quarter turn has 20 bits, and its product with the first piece 53."""

_PER_HALF_TURN: Final = 0.3183098861837907
_HALF_TURN: Final = (3.1415926534682512, 1.2154201013012384e-10)
"""Pi, in a piece of 33 bits and the rest."""

_PIECES: Final = tuple(
    n * 2.0**unit
    for n, unit in (
        (341782637, -30), (423170132, -59), (352195499, -88), (488592205, -117), (461485765, -146),
        (90590992, -175), (478285810, -204),
    )
)  # fmt: skip
"""1 / pi to 2^-204. The largest float is below 2^128, and none is nearer to a zero than 2^-33 half turns."""

_SINE: Final = (
    3.1415926535895973, -5.167712779977312, 2.5501640354193094, -0.5992644257354168,
    0.08214473211270053, -0.0073637850186621424, 0.00044720028375837316,
)  # fmt: skip
"""sin(pi r) / r in r * r for |r| up to 1/2, to 2^-43."""

_SINE_OF_RADIANS: Final = tuple(c / np.pi ** (2 * i + 1) for i, c in enumerate(_SINE))
"""The same of radians up to pi / 2."""

_SMALL: Final = np.uint32(0x39000000)
"""Bits of 2^-13: sine and tangent of smaller magnitudes are the argument, rounded."""

_LARGE_PIECES: Final = 5
"""So many have products of one and more; those of the others are below 2^-17."""


def _half_turns(x: Any) -> list[Any]:
    """Terms whose sum is x / pi modulo two, small ones as they are; float64 of the shape of ``x``."""
    wide = lax.convert_element_type(x, np.float64)
    large = [wide * piece for piece in _PIECES[:_LARGE_PIECES]]
    small = [wide * piece for piece in _PIECES[_LARGE_PIECES:]]
    return [product - 2.0 * nearest(0.5 * product) for product in large] + small


def _less(terms: list[Any], whole: Any) -> Any:
    """The sum of the terms less a whole or half number near it, without cancellation of what is rounded."""
    return reduce(lambda total, term: total + term, terms[1:], terms[0] - whole)


def _nearest(terms: list[Any], half: float = 0.0) -> Any:
    """The whole number nearest to the sum of the terms and ``half``."""
    return nearest(reduce(lambda total, term: total + term, terms) + half)


def sine_of(r: Any) -> Any:
    """sin(pi r) for |r| up to 1/2."""
    return r * polynomial(_SINE, r * r)


def _signed_by(value: Any, whole: Any) -> Any:
    """The value, with its sign turned where a small whole number is odd."""
    last = wide_bits(whole + WHOLE)
    odd = lax.shift_left(last, lax.full_like(last, 63))
    return of_wide_bits(wide_bits(value) ^ odd)


def wide_sine(x: Any) -> Any:
    """sin(x) of a float32 array, float64; of zero, and of denormal numbers, zero."""
    terms = _half_turns(x)
    whole = _nearest(terms)
    return _signed_by(sine_of(_less(terms, whole)), whole)


def wide_cosine(x: Any) -> Any:
    """cos(x) of a float32 array, float64: the sine of half a turn's half more."""
    terms = _half_turns(x)
    whole = _nearest(terms, 0.5)
    return _signed_by(sine_of(_less(terms, whole - 0.5)), whole)


def _rest(wide: Any, halves: Any) -> Any:
    """What is left of angles less so many half turns, in radians."""
    first, rest = _HALF_TURN
    return (wide - halves * first) - halves * rest


def _sine_of_radians(r: Any) -> Any:
    """sin(r) for |r| up to pi / 2."""
    return r * polynomial(_SINE_OF_RADIANS, r * r)


def near_sine(x: Any) -> Any:
    """sin(x) of a float32 array, no number of which is beyond `FARTHEST`."""
    wide = lax.convert_element_type(x, np.float64)
    whole = nearest(wide * _PER_HALF_TURN)
    return _small_as_it_is(x, _signed_by(_sine_of_radians(_rest(wide, whole)), whole))


def near_cosine(x: Any) -> Any:
    """cos(x) of the same."""
    wide = lax.convert_element_type(x, np.float64)
    whole = nearest(wide * _PER_HALF_TURN + 0.5)
    value = _signed_by(_sine_of_radians(_rest(wide, whole - 0.5)), whole)
    return lax.convert_element_type(value, np.float32)


def near_tangent(x: Any) -> Any:
    """tan(x) of the same."""
    wide = lax.convert_element_type(x, np.float64)
    whole = nearest(wide * _PER_HALF_TURN)
    r = _rest(wide, whole)
    side = _half_like(r)
    above, below = (_sine_of_radians(angle) for angle in (r, _rest(wide, whole + side)))
    return _small_as_it_is(x, above / below * (-2.0 * side))


def far_sine(x: Any) -> Any:
    """sin(x) of a float32 array."""
    return _small_as_it_is(x, wide_sine(x))


def far_cosine(x: Any) -> Any:
    """cos(x) of a float32 array."""
    return lax.convert_element_type(wide_cosine(x), np.float32)


def far_tangent(x: Any) -> Any:
    """tan(x) of a float32 array: sine over cosine, each reduced by itself, as either may be near zero."""
    terms = _half_turns(x)
    whole = _nearest(terms)
    r = _less(terms, whole)
    side = _half_like(r)
    value = sine_of(r) / sine_of(_less(terms, whole + side)) * (-2.0 * side)
    return _small_as_it_is(x, value)


def sine(x: Any) -> Any:
    """sin(x) of a float32 array, by the shorter way where that may be."""
    return within(x, FARTHEST, near_sine, far_sine)


def cosine(x: Any) -> Any:
    """cos(x) of a float32 array, likewise."""
    return within(x, FARTHEST, near_cosine, far_cosine)


def tangent(x: Any) -> Any:
    """tan(x) of a float32 array, likewise."""
    return within(x, FARTHEST, near_tangent, far_tangent)


def _half_like(r: Any) -> Any:
    """Half with the sign of what is left of an angle: less so many half turns, its sine is r's cosine."""
    return lax.select(r < 0.0, lax.full_like(r, -0.5), lax.full_like(r, 0.5))


def _small_as_it_is(x: Any, value: Any) -> Any:
    """The value rounded; of small arguments these themselves, zeros' signs and denormals included."""
    return lax.select(magnitude_bits(x) < _SMALL, x, lax.convert_element_type(value, np.float32))
