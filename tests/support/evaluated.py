"""Programs for ``graphopt evaluate``: good ones, and all that may go wrong with a user's."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np

from support.small_programs import STATE, chain


def _wave(x):
    return jnp.sin(x) * x + jnp.cos(x) * (x - 1.0) + jnp.exp(-x) * jnp.tanh(x)


def _loop():
    return chain, (STATE,)


def _plain():
    print('{"row": "this is not an answer"}', flush=True)
    os.write(1, b"nor is this\n")
    return _wave, (np.linspace(0.0, 1.0, 64, dtype=np.float32),)


def _raises():
    def fails(x):
        raise ValueError("cannot be traced")

    return fails, (1.0,)


def _fails_to_run():
    def callback(x):
        raise RuntimeError("cannot be run")

    def fails(x):
        return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), _wave(x))

    return fails, (np.ones(64, np.float32),)


def _aborts():
    os.abort()


def _unbuildable():
    raise OSError("no such data set")


def _not_a_pair():
    return 3


WORKLOADS = {
    "loop": _loop,
    "raises": _raises,
    "fails to run": _fails_to_run,
    "aborts": _aborts,
    "unbuildable": _unbuildable,
    "not a pair": _not_a_pair,
    "plain": _plain,
}

HOPELESS = {"unbuildable": _unbuildable, "raises": _raises}
