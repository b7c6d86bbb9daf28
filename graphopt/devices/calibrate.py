"""Measures the devices that are there: a `Cluster` of real devices, once per process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from graphopt import jax_private
from graphopt.machine import probe
from graphopt.placement.cluster import NO_POOL, Cluster, DeviceKind

_SIDE: Final = 512
_LARGE: Final = 1 << 21
_SMALL: Final = 256
_STEPS: Final = 200


def calibrate(devices: Sequence[Any]) -> Cluster:
    """The machine model of real devices; measured at the first call for these devices."""
    return _calibrate(tuple(devices))


@functools.lru_cache(maxsize=8)
def _calibrate(devices: tuple[Any, ...]) -> Cluster:
    kinds: dict[str, int] = {}
    rows: list[DeviceKind] = []
    for device in devices:
        name = str(device.device_kind)
        if name not in kinds:
            kinds[name] = len(rows)
            rows.append(_kind(name, device))
    count = len(devices)
    latency, rate = np.zeros((count, count)), np.full((count, count), 1e12)
    measured: dict[tuple[str, str], tuple[float, float]] = {}
    for a in range(count):
        for b in range(count):
            if a != b:
                pair = (str(devices[a].device_kind), str(devices[b].device_kind))
                if pair not in measured:
                    measured[pair] = _link(devices[a], devices[b])
                latency[a, b], rate[a, b] = measured[pair]
    return Cluster(
        tuple(rows),
        np.array([kinds[str(d.device_kind)] for d in devices], np.int16),
        np.array([_memory(d, devices) for d in devices]),
        latency,
        rate,
        np.array([0 if d.platform == "cpu" else NO_POOL for d in devices], np.int16),
        *_dispatch(devices),
    )


def _kind(name: str, device: Any) -> DeviceKind:
    square = jax.device_put(jnp.ones((_SIDE, _SIDE)), device)
    vector = jax.device_put(jnp.ones(_LARGE), device)
    small = jax.device_put(jnp.ones(_SMALL), device)
    product, scale = jax.jit(lambda a: a @ a), jax.jit(lambda a: a * 2.0 + 1.0)

    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, _STEPS, lambda _, a: jnp.tanh(a[::-1]) + jnp.roll(a, 1), x)

    looped = jax.jit(loop)
    launch = _best(lambda: scale(small))
    in_loop = max(1e-9, (_best(lambda: looped(small)) - launch) / (3 * _STEPS))
    return DeviceKind(
        name,
        flops_per_s=2.0 * _SIDE**3 / max(1e-9, _best(lambda: product(square)) - launch),
        bytes_per_s=8.0 * _LARGE / max(1e-9, _best(lambda: scale(vector)) - launch),
        # A kernel within a module costs much less than a call of its own from Python.
        launch_s=launch / 10.0 if device.platform != "cpu" else in_loop,
        loop_launch_s=in_loop,
    )


def _link(source: Any, target: Any) -> tuple[float, float]:
    """Seconds until a small array has arrived, and bytes per second of large ones."""
    sharding = SingleDeviceSharding(target)
    small = jax.device_put(jnp.ones(_SMALL), source)
    large = jax.device_put(jnp.ones(_LARGE), source)
    short = _best(lambda: jax_private.copy_arrays([small], sharding))
    long = _best(lambda: jax_private.copy_arrays([large], sharding))
    return short, 4.0 * _LARGE / max(1e-9, long - short)


def _dispatch(devices: Sequence[Any]) -> tuple[float, float]:
    """Seconds of the host to start a segment, and to start copying one value."""
    here = SingleDeviceSharding(devices[0])
    there = SingleDeviceSharding(devices[-1])
    small = jax.device_put(jnp.ones(_SMALL), here)
    run = jax.jit(lambda a: [a + 1.0]).lower(small).compile()
    return (
        _best(lambda: run(small), wait=False),
        _best(lambda: jax_private.copy_arrays([small], there), wait=False),
    )


def _memory(device: Any, devices: Sequence[Any]) -> float:
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None
    if stats and stats.get("bytes_limit"):
        return float(stats["bytes_limit"])
    sharing: int = sum(d.platform == device.platform for d in devices)
    return float(probe().memory_bytes) / sharing


def _best(run: Callable[[], Any], *, wait: bool = True, repeats: int = 15) -> float:
    """Shortest of several runs; the first is not counted."""
    jax.block_until_ready(run())
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        if wait:
            jax.block_until_ready(result)
        times.append(time.perf_counter() - start)
        jax.block_until_ready(result)
    shortest: float = min(times)
    return shortest
