"""What the tests on two CPU devices run in a child: ``python tests/devices/two_devices.py CASE [SEEDS]``.

Every case raises if something is wrong, and prints ``ok`` at the end.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_num_cpu_devices", 2)

from support.placements import random_program, traced_program  # noqa: E402

import graphopt  # noqa: E402
from graphopt.devices import PlacedProgram, calibrate, cut, place  # noqa: E402
from graphopt.devices.copies import PlacedCopies  # noqa: E402
from graphopt.errors import ConfigError, PolicyError  # noqa: E402
from graphopt.measure import compare_outputs  # noqa: E402
from graphopt.placement.baselines import Problem  # noqa: E402

DEVICES = jax.devices()
FORCED = {"measure": False, "profile": False, "min_gain": 0.0}
"""Whatever the policy says is done."""


def branches(x, weights):
    def loop(v, w):
        return jax.lax.fori_loop(0, 40, lambda _, a: jnp.tanh(a @ w), v)

    return loop(x, weights["a"]) + loop(x, weights["b"]) + x


def arguments(size: int = 16):
    keys = jax.random.split(jax.random.key(0), 3)
    x, a, b = (jax.random.normal(k, (size, size)) for k in keys)
    return x, {"a": 0.2 * a, "b": 0.2 * b}  # loops that do not amplify rounding errors


def halves(problem: Problem) -> np.ndarray:
    """A policy without search: one device per half of the groups."""
    groups = np.arange(problem.groups)
    return problem.masks.repair(groups * 2 // problem.groups)


def loops_apart(problem: Problem) -> np.ndarray:
    """A policy that sends every second loop to the second device."""
    tasks = problem.simulator.tasks
    placement = np.zeros(problem.groups, np.int16)
    loops = np.flatnonzero(tasks.launches > 0)
    placement[tasks.group[loops[1::2]]] = 1
    return problem.masks.repair(placement)


def agree(reference, result) -> None:
    assert jax.tree.structure(reference) == jax.tree.structure(result)
    for a, b in zip(jax.tree.leaves(reference), jax.tree.leaves(result), strict=True):
        assert jax.typeof(a) == jax.typeof(b), (jax.typeof(a), jax.typeof(b))
    assert compare_outputs(reference, result, slack=5.0).equal


def case_random(seeds: str) -> None:
    """Any placement runs and agrees with one device."""
    for seed in range(*map(int, seeds.split("-"))):
        fn, args = random_program(seed)
        reference = jax.jit(fn)(*args)
        traced = traced_program(fn, args)
        rng = np.random.default_rng(seed)
        for share in (0.5, 0.1):
            device = (rng.random(len(traced.equation_task)) < share).astype(int).tolist()
            program = PlacedProgram(traced, cut(traced, device), DEVICES, PlacedCopies())
            flat = program(jax.tree.leaves(args))
            assert all(leaf.devices() == {DEVICES[0]} for leaf in flat)
            agree(reference, jax.tree.unflatten(jax.tree.structure(reference), flat))


def case_place() -> None:
    """Pytrees, keywords, static arguments, closures, random keys, scalars, transformations."""
    offset = jnp.arange(16.0)

    def fn(x, weights, *, power, key, scale):
        noise = jax.random.normal(key, x.shape)
        return {"y": branches(x, weights) ** power * scale + noise, "offset": offset, "x": x}

    x, weights = arguments()
    key = jax.random.key(3)
    placed = place(fn, DEVICES, loops_apart, **FORCED, static_argnames="power")
    plain = jax.jit(fn, static_argnames="power")
    for power in (2, 3):
        for _ in range(2):
            given = {"power": power, "key": key, "scale": 0.5}
            agree(plain(x, weights, **given), placed(x, weights, **given))
    assert len(placed.plans) == 2
    assert all(len(plan.devices) == 2 for plan in placed.plans), placed.plans
    ready = place(jax.jit(branches), DEVICES, loops_apart, **FORCED)
    agree(branches(x, weights), ready(x, weights))
    gradient = jax.grad(lambda v: ready(v, weights).sum())(x)
    agree(jax.grad(lambda v: branches(v, weights).sum())(x), gradient)
    agree(branches(x, weights), jax.jit(ready)(x, weights))
    assert ready.plans[0].segments > 1
    numpy_args = jax.tree.map(np.array, (x, weights))
    first = ready(*numpy_args)
    numpy_args[0][:] += 1.0  # a numpy array may change between calls
    agree(branches(*numpy_args), ready(*numpy_args))
    assert not np.allclose(first, ready(*numpy_args))
    assert "placed" in str(graphopt.report())


def case_weights() -> None:
    """Weights are copied once; results that come back as arguments are not copied again."""
    x, weights = arguments()

    def step(x, weights):
        y = branches(x, weights)
        return {name: w - 0.01 * jnp.sin(w) * y.sum() for name, w in weights.items()}

    placed = place(step, DEVICES, halves, **FORCED)
    reference = weights
    for _ in range(3):
        weights = placed(x, weights)
        reference = jax.jit(step)(x, reference)
    agree(reference, weights)
    copies = placed._copies
    x, weights = arguments()
    placed(x, weights)
    before = copies.made
    for _ in range(3):
        placed(x, weights)
    assert copies.made == before
    alive = len(copies._watch)
    del x, weights
    assert len(copies._watch) < alive


def case_faults() -> None:
    """Failures end on one device with right results, and are reported."""
    x, weights = arguments()
    reference = branches(x, weights)

    placed = place(branches, DEVICES, loops_apart, **FORCED)
    agree(reference, placed(x, weights))
    plan = placed.plans[0]
    steps = plan.program._steps

    def exhausted(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    steps[-1] = replace(steps[-1], run=exhausted)
    agree(reference, placed(x, weights))
    assert "RESOURCE_EXHAUSTED" in placed.plans[0].reason
    assert len(placed.plans[0].devices) == 1
    agree(reference, placed(x, weights))

    lost = place(branches, DEVICES, loops_apart, **FORCED)
    agree(reference, lost(x, weights))
    lost.lose_device(DEVICES[0])
    result = lost(x, weights)
    agree(reference, result)
    assert lost.plans[0].reason == "one device"
    try:
        lost.lose_device(DEVICES[1])
        raise AssertionError("the last device was given up")
    except ConfigError:
        pass

    alone = place(branches, DEVICES[:1])
    agree(reference, alone(x, weights))
    assert alone.plans[0].reason == "one device"
    nobody = place(branches, DEVICES, None)
    agree(reference, nobody(x, weights))
    assert nobody.plans[0].reason == "no policy"


def case_compile_failure() -> None:
    """A segment that does not compile: one device."""
    import graphopt.devices.runtime as runtime

    x, weights = arguments()
    original = runtime.compile_segment

    def failing(program, segment, sharding, number):
        if segment.device == 1:
            raise RuntimeError("INTERNAL: code generation failed")
        return original(program, segment, sharding, number)

    runtime.compile_segment = failing
    placed = place(branches, DEVICES, loops_apart, **FORCED)
    agree(branches(x, weights), placed(x, weights))
    assert "code generation failed" in placed.plans[0].reason, placed.plans


def case_refusals() -> None:
    """What cannot be placed runs on one device and says why; wrong use is a typed error."""
    x, weights = arguments()

    def talks(x):
        jax.debug.callback(lambda _: None, x[0, 0])
        return jnp.tanh(x)

    def sends(x):
        return jax.device_put(x, DEVICES[0]) + 1.0

    for fn, rule in ((talks, "effects"), (sends, "explicit-device")):
        placed = place(fn, DEVICES, halves, **FORCED)
        agree(jax.jit(fn)(x), placed(x))
        assert placed.plans[0].reason == rule, placed.plans
    for devices in ([], [DEVICES[0], DEVICES[0]]):
        try:
            place(branches, devices)
            raise AssertionError("accepted")
        except ConfigError:
            pass
    try:
        place(branches, DEVICES, no_such_option=1)
        raise AssertionError("accepted")
    except ConfigError:
        pass
    for policy in ("no such policy", lambda problem: "everything"):
        try:
            place(branches, DEVICES, policy, profile=False)(x, weights)
            raise AssertionError("accepted")
        except PolicyError:
            pass


def case_measured() -> None:
    """With measuring, the default; whatever wins, results agree; the machine model is sane."""
    x, weights = arguments(32)
    placed = place(branches, DEVICES, budget_s=0.1)
    agree(branches(x, weights), placed(x, weights))
    agree(branches(x, weights), placed(x, weights))
    cluster = calibrate(DEVICES)
    assert len(cluster) == 2 and cluster.latency_s[0, 1] > 0 and cluster.dispatch_s > 0
    assert (cluster.pool == 0).all()


def case_plugin() -> None:
    """Segments go through the plugin's rewrite."""
    graphopt.install("xla-default")
    x, weights = arguments()
    placed = place(branches, DEVICES, loops_apart, **FORCED)
    agree(branches(x, weights), placed(x, weights))
    names = [record.name for record in graphopt.report().records]
    assert any("device1" in name for name in names), names
    graphopt.uninstall()


if __name__ == "__main__":
    globals()[f"case_{sys.argv[1]}"](*sys.argv[2:])
    print("ok")
