"""Rounding or wrong? Correct rewrites of programs that amplify rounding pass, wrong ones do not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import normal

from graphopt.measure import compare_outputs, compile_with
from graphopt.measure.comparing.yardstick import (
    CHAOTIC,
    UNVERIFIABLE,
    Judgement,
    Yardstick,
    host_leaves,
    program_yardstick,
)
from graphopt.measure.compiling.functions import unoptimized

X = np.linspace(0.1, 0.9, 64, dtype=np.float32)
WHOLE = np.arange(1, 9, dtype=np.int16)


def host(fn):
    """A function from inputs to host results."""
    compiled = jax.jit(fn)
    return lambda inputs: [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]


def judge(default, candidate, inputs) -> Judgement:
    return Yardstick(host(default), inputs).judge(host(candidate)(inputs))


def logistic(steps: int, rate: float = 3.9, *, order: int = 0):
    """The logistic map, which doubles errors at every step; `order` writes its product differently."""

    def step(x, _):
        if order:
            return rate * x - rate * (x * x), None
        return rate * x * (1.0 - x), None

    return lambda x: jax.lax.scan(step, x, None, length=steps)[0]


def pendulum(steps: int, gravity: float = 9.81, *, order: int = 0):
    """A double-pendulum-like motion: two coupled angles; also returns its energy."""

    def step(state, _):
        a, b, u, v = state
        du = -gravity * jnp.sin(a) - 3.0 * jnp.sin(a - b)
        dv = (
            -gravity * jnp.sin(b) + 3.0 * (jnp.sin(a) * jnp.cos(b) - jnp.cos(a) * jnp.sin(b))
            if order
            else -gravity * jnp.sin(b) + 3.0 * jnp.sin(a - b)
        )
        u, v = u + 0.01 * du, v + 0.01 * dv
        return (a + 0.01 * u, b + 0.01 * v, u, v), None

    def run(x):
        state = (3.0 * x, 2.0 + x, 0.0 * x, 0.0 * x)
        a, b, u, v = jax.lax.scan(step, state, None, length=steps)[0]
        return a, b, 0.5 * (u * u + v * v)

    return run


def cancellation(scale: float = 1.0, *, order: int = 0):
    """Small differences of large numbers."""

    def run(x):
        large = 1e4 * (1.0 + x)
        total = (large - 1e4) * scale if order else (large * scale - 1e4 * scale)
        return total

    return run


AMPLIFYING = {
    "logistic map, 12 steps": (logistic(12), logistic(12, order=1)),
    "logistic map, 18 steps": (logistic(18), logistic(18, order=1)),
    "coupled pendulums": (pendulum(400), pendulum(400, order=1)),
    "cancellation": (cancellation(1.1), cancellation(1.1, order=1)),
}


@pytest.mark.parametrize(("default", "candidate"), AMPLIFYING.values(), ids=AMPLIFYING)
def test_a_correct_rewrite_of_a_program_that_amplifies_rounding_passes(default, candidate):
    judgement = judge(default, candidate, [X])
    assert judgement.equal
    assert judgement.relative > 0, "the rewrite changed nothing: the test shows nothing"
    assert judgement.comparable == judgement.results


WRONG = {
    "logistic map, rate off by 1 %": (logistic(12), logistic(12, 3.9 * 1.01)),
    "logistic map, rate off by 0.1 %": (logistic(18), logistic(18, 3.9 * 1.001)),
    "logistic map, one step less": (logistic(18), logistic(17)),
    "coupled pendulums, gravity off by 1 %": (pendulum(400), pendulum(400, 9.81 * 1.01)),
    "coupled pendulums, one step more": (pendulum(400), pendulum(401)),
    "cancellation, off by 1 %": (cancellation(1.1), cancellation(1.1 * 1.01)),
    "result off by 1 %": (logistic(14), lambda x: 1.01 * logistic(14)(x)),
    "wrong branch": (
        lambda x: jnp.where(x > 0.5, logistic(12)(x), x),
        lambda x: jnp.where(x > 0.5, x, logistic(12)(x)),
    ),
    "one element of many": (logistic(12), lambda x: logistic(12)(x).at[3].add(0.01)),
    "a swapped result": (pendulum(200), lambda x: pendulum(200)(x)[::-1]),
    "a plain program, off by 1 %": (jnp.sin, lambda x: jnp.sin(x) * 1.01),
    "a plain program, off by 0.1 %": (jnp.sin, lambda x: jnp.sin(x * 1.001)),
}


@pytest.mark.parametrize(("default", "candidate"), WRONG.values(), ids=WRONG)
def test_a_wrong_rewrite_fails(default, candidate):
    judgement = judge(default, candidate, [X])
    assert not judgement.equal
    assert judgement.relative > 1e-4


def test_rounding_alone_is_no_reason_for_perturbed_runs():
    runs = []

    def run(inputs):
        runs.append(inputs)
        return host(jnp.sin)(inputs)

    yardstick = Yardstick(run, [X])
    assert yardstick.judge([np.sin(X)]).equal
    assert len(runs) == 1
    assert not yardstick.judge([np.cos(X)]).equal
    after = len(runs)
    assert after > 1
    assert not yardstick.judge([np.cos(X)]).equal
    assert len(runs) == after, "perturbed runs are made once"


def test_integers_must_be_equal():
    def program(x, n):
        return logistic(18)(x), n * 2, (logistic(18)(x) > 0.5)

    inputs = [X, np.arange(5, dtype=np.int32)]
    yardstick = Yardstick(host(program), inputs)
    good = host(program)(inputs)
    assert yardstick.judge(good).equal
    for place, wrong in ((1, good[1] + (good[1] == 4)), (2, ~good[2])):
        results = [*good]
        results[place] = wrong
        assert not yardstick.judge(results).equal


def test_integers_that_depend_on_rounding_may_differ_only_as_rounding_makes_them():
    """Where a value lies on a step of floor(), its last bit decides; elsewhere nothing may change."""

    def program(x, shift=0):
        return jnp.int32(jnp.floor(x * 10)) + shift, jnp.sin(x)

    yardstick = Yardstick(host(program), [np.linspace(0.1, 0.9, 400, dtype=np.float32)])
    assert 0 < yardstick.growth[0] < 0.02
    good = yardstick.reference[0].copy()
    good[0] -= 1
    assert yardstick.judge([good, yardstick.reference[1]]).equal
    shifted = program(jnp.linspace(0.1, 0.9, 400, dtype=np.float32), 1)
    assert not yardstick.judge(jax.tree.map(np.asarray, shifted)).equal
    assert not yardstick.judge([good.astype(np.int16), yardstick.reference[1]]).equal
    assert not yardstick.judge([good[:7], yardstick.reference[1]]).equal


def test_chaotic_results_say_nothing_alone():
    """After 100 doublings nothing of the input is left: neither right nor wrong can be shown."""
    yardstick = Yardstick(host(logistic(100)), [X])
    assert yardstick.growth[0] > CHAOTIC
    judgement = yardstick.judge(host(logistic(100, order=1))([X]))
    assert (judgement.equal, judgement.comparable, judgement.results) == (False, 0, 1)
    assert judgement.chaotic and judgement.relative > CHAOTIC and judgement.moved > CHAOTIC
    problem = judgement.problem()
    assert problem.startswith(UNVERIFIABLE)
    assert f"{judgement.relative:.1e}" in problem and f"{judgement.moved:.1e}" in problem


@pytest.mark.parametrize(
    "wrong", [lambda x: 100 * x, lambda x: np.nan * x, lambda x: x.astype(np.float64)]
)
def test_what_chaos_does_not_explain_is_wrong(wrong):
    """Of another size, not finite, of another type: that no last bit of an input does."""
    judgement = Yardstick(host(logistic(100)), [X]).judge([wrong(host(logistic(100))([X])[0])])
    assert not judgement.equal and not judgement.chaotic
    assert judgement.problem().startswith("wrong result: off by ")


def test_a_wrong_result_is_stated_with_its_error():
    judgement = judge(logistic(12), logistic(12, 3.9 * 1.01), [X])
    assert not judgement.chaotic and judgement.moved < CHAOTIC
    assert judgement.problem().startswith(f"wrong result: off by {judgement.relative:.1e}, ")
    assert f"{judgement.moved:.1e} when its inputs move" in judgement.problem()
    assert judge(logistic(12), logistic(12), [X]).problem() == ""


def test_beside_comparable_results_chaotic_ones_must_be_of_their_kind():
    def program(x):
        return logistic(100)(x), jnp.sin(x)

    yardstick = Yardstick(host(program), [X])
    chaotic, plain = host(lambda x: (logistic(100, order=1)(x), jnp.sin(x)))([X])
    assert yardstick.judge([chaotic, plain]).equal
    assert not yardstick.judge([chaotic, plain * np.float32(1.01)]).equal
    assert not yardstick.judge([chaotic * 100, plain]).equal
    assert not yardstick.judge([chaotic * np.nan, plain]).equal
    assert not yardstick.judge([chaotic[:5], plain]).equal
    assert not yardstick.judge([chaotic.astype(np.float64), plain]).equal


def test_another_number_of_results_fails():
    yardstick = Yardstick(host(lambda x: (x, x)), [X])
    assert not yardstick.judge([X]).equal
    assert not yardstick.judge([X, X, X]).equal


def test_nan_and_infinity():
    def program(x):
        return jnp.log(x - 0.5), 1.0 / (x - x)

    yardstick = Yardstick(host(program), [X])
    good = host(program)([X])
    assert yardstick.judge(good).equal
    assert not yardstick.judge([np.nan_to_num(good[0]), good[1]]).equal
    assert not yardstick.judge([good[0], -good[1]]).equal


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "complex64"])
def test_perturbed_inputs_differ_in_their_last_bits_only(name):
    seen = []

    def run(inputs):
        seen.append(inputs)
        return [np.zeros(1, np.float32)]

    value = (normal(40) + (1j * normal(40, seed=1) if name == "complex64" else 0)).astype(
        jnp.dtype(name)
    )
    whole = np.arange(6, dtype=np.int32)
    yardstick = Yardstick(run, [value, whole])
    assert yardstick.growth == [0.0]
    for moved, kept in seen[1:]:
        assert kept is whole
        assert (moved.dtype, moved.shape) == (value.dtype, value.shape)
        a, b = (np.asarray(v).astype(np.complex128) for v in (value, moved))
        eps = float(jnp.finfo(value.dtype).eps)
        assert np.abs(a - b).max() > 0
        assert (np.abs(a - b) <= 2 * eps * np.abs(a)).all()


def test_the_seed_decides_the_perturbations():
    def moved(seed):
        seen = []

        def run(inputs):
            seen.append(inputs[0])
            return [inputs[0]]

        assert Yardstick(run, [X], seed).growth[0] > 0
        return np.stack(seen[1:])

    np.testing.assert_array_equal(moved(1), moved(1))
    assert (moved(1) != moved(2)).any()
    assert (moved(1)[0] != moved(1)[1]).any()


def adaptive(error_scale: float):
    """Heun steps whose length depends on an error estimate that is mostly rounding."""

    def fn(state, rate):
        def step(carry):
            t, y, h = carry
            slope = -rate * y
            new = y + 0.5 * h * (slope - rate * (y + h * slope))
            error = jnp.max(jnp.abs(new - y - h * slope)) * error_scale
            good = error <= 1
            factor = jnp.clip(0.9 / jnp.sqrt(jnp.maximum(error, 1e-10)), 0.2, 5.0)
            return jnp.where(good, t + h, t), jnp.where(good, new, y), h * factor

        return {"end": jax.lax.while_loop(lambda c: c[0] < 4.0, step, (0.0, state["y"], 1e-2))[1]}

    return fn


def test_a_program_with_arguments_of_any_structure_is_judged_by_its_leaves():
    """Steps are accepted or not by a hair, so that results move by more than the fixed tolerance."""
    args = ({"y": jnp.array([1.0, 0.3])}, 0.7)
    default = jax.jit(adaptive(1e5))
    yardstick = program_yardstick(default, args)
    moved = default({"y": args[0]["y"] * np.float32(1 + 1.2e-7)}, 0.7)
    assert not compare_outputs(default(*args), moved).equal
    assert yardstick.judge(host_leaves(moved)).equal
    wrong = default(args[0], 0.8)
    assert not yardstick.judge(host_leaves(wrong)).equal


def test_random_keys_are_arguments_too():
    key = jax.random.key(3)
    draw = jax.jit(lambda key: jax.random.normal(key, (5,)))
    yardstick = program_yardstick(draw, (key,))
    assert yardstick.judge(host_leaves(draw(key))).equal
    assert not yardstick.judge(host_leaves(draw(jax.random.key(4)))).equal


def seeded(steps: int, *, order: int = 0):
    """A program whose only argument is a random key, as of a whole training; it amplifies rounding."""

    def run(key):
        x = jax.random.uniform(key, (64,), minval=0.1, maxval=0.9)
        return logistic(steps, order=order)(x)

    return run


def test_what_a_program_makes_of_a_key_is_judged_by_another_compile():
    key = jax.random.key_data(jax.random.key(3))
    default = compile_with(seeded(15), (key,))
    moved = program_yardstick(default.executable, (key,))
    recompiled = program_yardstick(default.executable, (key,), unoptimized(default))
    right = host_leaves(jax.jit(seeded(15, order=1))(key))
    wrong = [np.asarray(r) * np.float32(1.1) for r in recompiled.reference]

    refused = moved.judge(right)
    assert not refused.equal
    assert refused.moved == 0.0, "its argument has no last bits to move"
    assert recompiled.judge(right).equal
    found = recompiled.judge(wrong)
    assert not found.equal
    assert found.moved is not None
    assert 0.0 < found.moved < CHAOTIC
    assert "LLVM does not optimize it" in found.problem()


def test_results_that_move_with_the_inputs_are_not_compiled_once_more():
    """What another compile changes would excuse more than rounding does."""

    def recompile():
        raise AssertionError("compiled again")

    yardstick = Yardstick(host(logistic(12)), [X], recompile=recompile)
    assert yardstick.judge(host(logistic(12, order=1))([X])).equal
    wrong = yardstick.judge([np.float32(1.1) * host(logistic(12))([X])[0]])
    assert not wrong.equal
    assert not wrong.recompiled


def test_a_simulation_whose_weights_do_not_move_it_is_compiled_once_more():
    """Its states come from a key, and one of its arguments only decides between actions."""

    def simulate(order):
        def run(key, weight):
            state = seeded(15, order=order)(key)
            return jnp.where(weight > 0.5, state, 0.0), weight * 2.0

        return run

    args = (jax.random.key_data(jax.random.key(3)), jnp.float32(0.75))
    default = compile_with(simulate(0), args)
    yardstick = program_yardstick(default.executable, args, unoptimized(default))
    assert yardstick.growth[0] == 0.0 < yardstick.growth[1]
    right = host_leaves(jax.jit(simulate(1))(*args))
    found = yardstick.judge(right)
    assert found.equal and found.recompiled
    assert not yardstick.judge([right[0] * np.float32(1.1), right[1]]).equal
    assert not yardstick.judge([right[0], right[1] * np.float32(1.1)]).equal


def test_it_is_compiled_once_more_once():
    compiles = []

    def run(inputs):
        return [inputs[0].astype(np.float32)]

    def recompile():
        compiles.append(1)
        return lambda inputs: [inputs[0] * np.float32(1.001)]

    yardstick = Yardstick(run, [WHOLE], recompile=recompile)
    assert yardstick.judge(run([WHOLE])).equal
    assert not compiles, "rounding alone is no reason"
    assert yardstick.judge([WHOLE * np.float32(1.003)]).equal
    assert not yardstick.judge([WHOLE * np.float32(1.006)]).equal
    assert len(compiles) == 1


def test_where_xla_does_not_compile_it_so_the_verdict_stands():
    def recompile():
        raise jax.errors.JaxRuntimeError("refused")

    yardstick = Yardstick(host(jnp.float32), [WHOLE], recompile=recompile)
    assert not yardstick.judge([WHOLE * np.float32(1.001)]).equal
