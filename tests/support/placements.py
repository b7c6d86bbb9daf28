"""Random programs with branches and devices of a made-up kind, shared by the placement tests."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.placement import Cluster, TaskGraph, Traced, build_tasks, flatten, uniform
from graphopt.placement.cluster import DeviceKind

KIND: Final = DeviceKind("test", 1e12, 1e11, 2e-6, 5e-7)


def cluster(devices: int, **changes: float) -> Cluster:
    """So many devices of `KIND` with slow links."""
    settings = {"memory_bytes": 1e9, "latency_s": 3e-6, "bytes_per_s": 1e10} | changes
    return uniform(KIND, devices, **settings)


@cache
def random_tasks(seed: int) -> TaskGraph:
    """The task graph of a random program."""
    return traced_program(*random_program(seed)).tasks


def random_program(seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A function of some operations in random order on a few values; and its arguments."""
    rng = np.random.default_rng(seed)
    plan = [(int(rng.integers(0, 9)), int(a), int(b)) for a, b in rng.integers(0, 99, (14, 2))]

    def fn(x: Any, weights: dict[str, Any]) -> Any:
        values = [x, weights["a"], jnp.ones_like(x)]
        for kind, a, b in plan:
            values.append(apply(kind, values[a % len(values)], values[b % len(values)]))
        return {"last": values[-1], "all": sum(v.sum() for v in values), "same": x, "one": 1.0}

    x = jnp.asarray(rng.standard_normal((6, 6)), jnp.float32)
    return fn, (x, {"a": jnp.asarray(rng.standard_normal((6, 6)), jnp.float32)})


def apply(kind: int, a: Any, b: Any) -> Any:
    """One operation: elementwise, product, several results, loops, branches, views of constants."""
    match kind:
        case 0:
            return jnp.tanh(a @ b)
        case 1:
            return jnp.sin(a) - b
        case 2:
            low, high = jnp.split(a, 2, axis=1)
            return jnp.concatenate([high, low], axis=1)
        case 3:
            return jax.lax.scan(lambda c, r: (jnp.cos(c + r), c), b[0], a)[1]
        case 4:
            return jax.lax.cond(a.sum() > 0, lambda: a * 0.5, lambda: b - 1.0)
        case 5:
            return jax.lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v + i), a)
        case 6:
            return jnp.sort(a, axis=0) + jnp.arange(6.0)
        case 7:
            return jax.nn.softmax(a) * jax.jit(jax.nn.relu)(b)
        case _:
            return a.at[1].add(b[0])


def traced_program(fn: Any, args: Any, name: str = "program") -> Traced:
    """The task graph of a function."""
    return build_tasks(flatten(jax.jit(fn).trace(*args).jaxpr, name))
