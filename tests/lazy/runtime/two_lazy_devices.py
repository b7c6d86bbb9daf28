"""What the tests of lazy tensors on two CPU devices run in a child process."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 2)

import graphopt.lazy as lt  # noqa: E402
from graphopt.errors import ConfigError  # noqa: E402
from graphopt.lazy.runtime import cut  # noqa: E402

RNG = np.random.default_rng(0)
FORCED = {"measure": False, "profile": False, "min_gain": 0.0}
"""Whatever the policy says is done."""


def halves(problem: Any) -> np.ndarray[Any, Any]:
    groups = np.arange(problem.groups)
    return problem.masks.repair(groups * 2 // problem.groups)


def work(x: lt.Tensor, a: lt.Tensor, b: lt.Tensor, scale: float) -> lt.Tensor:
    left = right = x
    for _ in range(3):
        left, right = lt.tanh(left @ a) * scale, lt.sin(right @ b) + 0.25
    return left * right + lt.sum(lt.take(x, lt.asarray([0, 3], device=x.device), axis=1))


def data() -> list[lt.Tensor]:
    return [lt.asarray(RNG.normal(size=(16, 16)).astype(np.float32) / 4) for _ in range(3)]


def run(tensors: list[lt.Tensor], scale: float = 0.7) -> np.ndarray[Any, Any]:
    with lt.step():
        result = work(*tensors, scale)
    return np.asarray(result)


def plans() -> list[str]:
    return [entry.placed for entry in cut.cache.entries()]


if __name__ == "__main__":
    tensors = data()
    run(tensors)
    alone = [run(tensors, scale) for scale in (0.7, 0.9)]

    lt.set_devices(["cpu:0", "cpu:1"], halves, **FORCED)
    for _ in range(2):
        for scale, expected in zip((0.7, 0.9), alone, strict=True):
            np.testing.assert_allclose(run(tensors, scale), expected, rtol=1e-4, atol=1e-5)
    assert any(text.startswith("2 device(s)") for text in plans()), plans()
    assert lt.metrics().optimizer["placed"] == 1
    gradient = lt.value_and_grad(lambda x, a, b: lt.sum(work(x, a, b, 0.7) ** 2))
    found = []
    for _ in range(3):
        with lt.step():
            value, slope = gradient(*tensors)
        found.append((float(value), np.asarray(slope)))
    np.testing.assert_allclose(found[0][1], found[2][1], rtol=1e-4, atol=1e-5)

    # Tensors of another device stay there.
    other = [x.to_device("cpu:1") for x in tensors]
    for _ in range(2):
        np.testing.assert_allclose(run(other), alone[0], rtol=1e-4, atol=1e-5)
    assert cut.cache.entries()[-1].placed == "one device"

    # A policy that does not exist leaves graphs where they are, and says so.
    lt.set_devices(jax.devices(), "no such policy", **FORCED)
    np.testing.assert_allclose(run(tensors), alone[0], rtol=1e-4, atol=1e-5)
    assert any("no such policy" in text for text in lt.metrics().fallbacks), lt.metrics().fallbacks

    for wrong in ({"devices": ["cpu:0", "cpu:0"]}, {"devices": ["cpu:0"], "speed": 3}):
        try:
            lt.set_devices(**wrong)
        except ConfigError:
            continue
        raise AssertionError(f"{wrong} was accepted")
    try:
        lt.set_devices(["cpu:7"])
    except ValueError as error:
        assert "cpu:7" in str(error)
    else:
        raise AssertionError("a device that is not there was accepted")

    lt.set_devices(None)
    np.testing.assert_allclose(run(tensors), alone[0], rtol=1e-4, atol=1e-5)
    assert cut.cache.entries()[-1].placed == "one device"
    print("ok")
