"""Small programs that tests compile, here and in child processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STATE = np.linspace(-1.0, 1.0, 512, dtype=np.float32)

NATIVE = "xla_cpu_small_call"
"""In the HLO text of an executable: it holds a native region."""


def rollout(x: Any) -> Any:
    """Fifty steps of something like CartPole: a loop of many small kernels, f32[512] states.

    The product in it keeps every jaxlib from making the loop native by itself.
    """

    def step(state: Any, _: None) -> Any:
        angle, speed = state
        force = jnp.tanh(4.0 * angle)
        push = (force + 0.05 * speed * speed * jnp.sin(angle)) / 1.1
        pull = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (1.3 + jnp.cos(angle) ** 2)
        turned = speed[:64].reshape(8, 8) @ angle[:64].reshape(8, 8)
        return (angle + 0.02 * speed, speed + 0.02 * pull), jnp.mean(angle * angle) + turned[0, 2]

    return jax.lax.scan(step, (x, 0.5 * x), None, length=50)


def chain(x: Any) -> Any:
    """Two hundred steps of tiny kernels, f32[512]: dispatch is most of it, so native code gains a lot.

    The product is there for the same reason as that of `rollout`.
    """

    def step(state: Any, _: None) -> Any:
        a, b, rest = state
        a = (a - jnp.mean(a)) / jnp.sqrt(jnp.var(a) + 0.1)
        b = b - jnp.sum(a * b) / jnp.sum(b * b + 1.0) * a
        c = jnp.cumsum(b)[::-1]
        a = a + 0.01 * jnp.tanh(c - jnp.mean(c)) + 1e-3 * jnp.max(b)
        turned = jnp.outer(a[:8], b[:8]) @ jnp.outer(b[:8], a[:8])
        return (a, b, jnp.roll(rest, 1)), jnp.mean(a * b) + turned[0, 1]

    return jax.lax.scan(step, (x[:24], x[24:48], x), None, length=200)


def named(name: str, fn: Callable[..., Any] = rollout) -> Any:
    """A jitted copy that no cache knows; its module is called ``jit_<name>``."""

    def copy(*args: Any) -> Any:
        return fn(*args)

    copy.__name__ = name
    return jax.jit(copy)


def is_native(compiled: Any) -> bool:
    """True if a compiled program holds a native region, which `rollout` has only when rewritten."""
    return NATIVE in compiled.as_text()
