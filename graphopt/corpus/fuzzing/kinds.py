"""Small programs with what ordinary programs seldom hold: callbacks, tokens, empty arrays, narrow types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import io_callback

from graphopt.corpus.inputs import normal
from graphopt.corpus.program import Built, ProgramSet

KINDS = ProgramSet()

NARROW: Final = (
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e3m4",
    "float8_e8m0fnu",
)
"""Eight-bit floats; each is a program of its own, as XLA lowers each in a different way."""


def _ignore(*_: Any) -> None:
    """What a debugging callback does with its values."""


@KINDS.register(
    "debug_in_loop",
    family="callback",
    description="debugging callback in a loop of f32[8]",
)
def _debug_in_loop() -> Built:
    def fn(state: Array) -> Any:
        def body(index: Array, state: Array) -> Array:
            jax.debug.callback(_ignore, state[0], index)
            return jnp.sin(state) * 1.01 + state[::-1]

        return lax.fori_loop(0, 5, body, state)

    return fn, (normal(8),)


@KINDS.register(
    "ordered_debug", family="callback", description="ordered callbacks around f32[64] work"
)
def _ordered_debug() -> Built:
    def fn(state: Array) -> tuple[Array, Array]:
        jax.debug.callback(_ignore, state, ordered=True)
        there = jnp.tanh(state) * 2.0
        jax.debug.callback(_ignore, there, ordered=True)
        return there, jnp.cumsum(there) + jnp.exp(-state)

    return fn, (normal(64),)


@KINDS.register(
    "pure_callback_loop",
    family="callback",
    description="pure host callback in a loop of f32[6]",
)
def _pure_callback_loop() -> Built:
    def fn(state: Array) -> Any:
        shape = jax.ShapeDtypeStruct(state.shape, state.dtype)

        def body(_: Array, state: Array) -> Array:
            seen = jax.pure_callback(
                lambda values: np.asarray(values) * np.float32(0.5), shape, state
            )
            return jnp.tanh(seen) + jnp.cos(state)

        return lax.fori_loop(0, 4, body, state)

    return fn, (normal(6),)


@KINDS.register(
    "ordered_io_scan",
    family="callback",
    description="ordered input callback in a scan over f32[5]",
)
def _ordered_io_scan() -> Built:
    def fn(state: Array) -> tuple[Array, Array]:
        shape = jax.ShapeDtypeStruct((), jnp.float32)

        def body(state: Array, _: None) -> tuple[Array, Array]:
            read = io_callback(
                lambda value: np.float32(value) * np.float32(0.25), shape, state[0], ordered=True
            )
            state = jnp.sin(state + read)
            return state, state.sum()

        return lax.scan(body, state, None, length=6)

    return fn, (normal(5),)


@KINDS.register(
    "empty_arrays",
    family="shapes",
    description="arrays without elements in products, sums and a loop",
)
def _empty_arrays() -> Built:
    def fn(state: Array) -> tuple[Array, ...]:
        empty = state[:0]
        rows = jnp.zeros((0, 4)) + jnp.sum(empty)

        def body(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return carry[0] + 1.0, jnp.sin(carry[1]) + jnp.sum(carry[0])

        rows, state = lax.fori_loop(0, 5, body, (rows, state))
        return (
            jnp.concatenate([empty, state]),
            rows @ jnp.ones((4, 3)),
            jnp.ones((3, 0)) @ jnp.zeros((0, 2)) + state[0],
            lax.dynamic_update_slice(state, empty, (3,)),
            jnp.sort(empty),
        )

    return fn, (normal(8),)


@KINDS.register(
    "empty_carries",
    family="shapes",
    description="loops and branches that carry no array",
)
def _empty_carries() -> Built:
    def fn(state: Array) -> tuple[Array, ...]:
        count = lax.while_loop(
            lambda c: c[1] < 5, lambda c: ((), c[1] + 1), ((), jnp.int32(state[0] * 0))
        )[1]
        lax.cond(count > 3, lambda v: (), lambda v: (), state)
        _, sums = lax.scan(lambda c, x: ((), x * 2.0 + count), (), state)
        return count, sums, lax.switch(count - 4, [jnp.sin, jnp.cos, jnp.tanh], state)

    return fn, (normal(8),)


@KINDS.register(
    "half_bytes",
    family="dtypes",
    description="s4 and u4 values unpacked, added, packed",
)
def _half_bytes() -> Built:
    def fn(state: Array) -> tuple[Array, ...]:
        small = jnp.clip(state * 3.0, -8, 7).astype(jnp.int4)
        natural = jnp.clip(jnp.abs(state) * 3.0, 0, 15).astype(jnp.uint4)
        wide = small.astype(jnp.int8) + natural.astype(jnp.int8)
        looped = lax.fori_loop(
            0, 3, lambda _, v: (v.astype(jnp.int4) + small).astype(jnp.int8), wide
        )
        return wide, looped, small.astype(jnp.float32) @ state

    return fn, (normal(16),)


def _narrow(name: str) -> Callable[[], Built]:
    def build() -> Built:
        dtype = jnp.dtype(name)

        def fn(state: Array) -> tuple[Array, Array]:
            near = jnp.abs(state) + 0.5
            first = near.astype(dtype).astype(jnp.float32)
            return lax.fori_loop(
                0, 3, lambda _, v: v.astype(dtype).astype(jnp.float32) * 2.0, first
            ), first + state

        return fn, (normal(24),)

    return build


for _name in NARROW:
    KINDS.register(
        _name,
        family="dtypes",
        description=f"f32 rounded to {_name} and back, in a loop",
    )(_narrow(_name))


@KINDS.register(
    "waves", family="spectral", description="c64[24,64] steps of a split operator, powers, phases"
)
def _waves() -> Built:
    def fn(real: Array, imag: Array, potential: Array) -> tuple[Array, ...]:
        turn = jnp.exp(-0.1j * potential)

        def step(z: Array, _: None) -> tuple[Array, Array]:
            spread = jnp.fft.ifft(turn * jnp.fft.fft(turn * z))
            z = jnp.where(jnp.abs(spread) > 3.0, jnp.conj(z), spread)
            return z, jnp.log1p(jnp.real(z) ** 2 + jnp.imag(z) ** 2)

        last, powers = lax.scan(step, lax.complex(real, imag), None, length=4)
        damped = jnp.exp(-jnp.abs(jnp.real(last))) * last / (2.0 + last * jnp.conj(last))
        return last, powers.sum(0), damped, jnp.angle(damped), jnp.sqrt(last) * 1j

    return fn, (normal(24, 64), normal(24, 64, seed=1), normal(24, 64, seed=2))
