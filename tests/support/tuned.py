"""Tuning with hardly any search, and a function to tune."""

from __future__ import annotations

import jax.numpy as jnp

from graphopt.learn.tune import tune
from support.captures import normal

X = normal(64)


def quick(fn, *args, store, **options):
    """Hardly any search: everything else still happens."""
    return tune(
        fn, *args, **{"budget_s": 1.0, "evaluations": 1, "store": store, "policy": None, **options}
    )


def wave(x, n=2.0):
    return jnp.sin(x) * n + jnp.cos(x) * (x - 1.0) + jnp.exp(-x) * jnp.tanh(x)
