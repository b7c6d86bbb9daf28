"""The CartPole study of "Operator Fusion in XLA" (arXiv 2301.13062): one environment step in variants.

The variants differ in what walls fusion off: random numbers in the loop, the concatenation of the new
state, and how far the loop is unrolled. Runs under old and new jax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.reported.programs import Built, Reported

STEPS = 128
ENVIRONMENTS = (1, 16, 256, 4096)


def _physics(x: Any, v: Any, angle: Any, spin: Any, action: Any) -> tuple[Any, ...]:
    force = jnp.where(action, 10.0, -10.0)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    move = push - 0.05 * turn * cosine / 1.1
    return x + 0.02 * v, v + 0.02 * move, angle + 0.02 * spin, spin + 0.02 * turn


def _out(x: Any, angle: Any) -> Any:
    return (jnp.abs(x) > 2.4) | (jnp.abs(angle) > 0.21)


def cartpole(count: int, *, random: bool, joined: bool, unroll: int = 1) -> Callable[[], Built]:
    """A rollout of `count` environments.

    Args:
        count: environments.
        random: actions are drawn inside the loop; else they are an input.
        joined: the state is one array that every step takes apart and concatenates anew.
        unroll: of the scan.
    """

    def build() -> Built:
        def fn(state: Any, actions: Any, seed: Any) -> Any:
            def step(carry: Any, action: Any) -> Any:
                state, key = carry
                if random:
                    key, draw = jax.random.split(key)
                    action = jax.random.uniform(draw, (count,)) < 0.5
                parts = tuple(state) if joined else state
                parts = _physics(*parts, action)
                done = _out(parts[0], parts[2])
                parts = tuple(jnp.where(done, 0.0, p) for p in parts)
                return ((jnp.stack(parts) if joined else parts), key), jnp.where(done, 0.0, 1.0)

            start = state if joined else tuple(state)
            key = jax.random.PRNGKey(seed)
            (state, _), rewards = lax.scan(step, (start, key), actions, unroll=unroll)
            return (state if joined else jnp.stack(state)), jnp.sum(rewards, axis=0)

        rng = np.random.default_rng(0)
        state = jnp.asarray(rng.uniform(-0.05, 0.05, (4, count)), jnp.float32)
        actions = jnp.asarray(rng.uniform(size=(STEPS, count)) < 0.5)
        return fn, (state, actions, jnp.int32(0))

    return build


def _variants() -> tuple[Reported, ...]:
    out = []
    for count in ENVIRONMENTS:
        for random in (True, False):
            for joined in (True, False):
                words = ("random" if random else "given", "joined" if joined else "parts")
                name = f"cartpole_{'_'.join(words)}_{count}"
                out.append(
                    Reported(name, "cartpole", cartpole(count, random=random, joined=joined))
                )
        build = cartpole(count, random=True, joined=False, unroll=4)
        out.append(Reported(f"cartpole_unrolled_{count}", "cartpole", build))
    return tuple(out)


CARTPOLE: tuple[Reported, ...] = _variants()
"""All variants."""
