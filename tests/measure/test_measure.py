"""Comparing results, summing up times, and compiling with a rewrite of our choice."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import xla
from support.captures import normal, proto_of
from support.processes import run_python

from graphopt import xla_hook
from graphopt.errors import VerificationError
from graphopt.hlo import build_graph
from graphopt.measure import Comparison, compare, compare_outputs, compile_with, modules_of
from graphopt.measure.comparing.numeric import TOLERANCE
from graphopt.measure.comparing.timing import summarise

# Results.

BASE = normal(3, 4)
NAN, INF = np.float32(np.nan), np.float32(np.inf)


def array(*values: Any, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


EQUAL: dict[str, tuple[Any, Any]] = {
    "the same": (BASE, BASE.copy()),
    "another container": (BASE, jnp.asarray(BASE)),
    "zeros of both signs": (array(0.0, 1.0), array(-0.0, 1.0)),
    "rounding": (BASE, BASE * np.float32(1 + 1e-6)),
    "a small entry beside a large one": (array(1000.0, 0.0), array(1000.0, 1e-3)),
    "nan": (array(1, NAN), array(1, NAN)),
    "only nan": (array(NAN), array(NAN)),
    "infinities": (array(INF, -INF, 2), array(INF, -INF, 2)),
    "integers": (np.arange(5), np.arange(5)),
    "booleans": (array(True, False, dtype=bool), array(True, False, dtype=bool)),
    "complex": (BASE + 1j * BASE, (BASE + 1j * BASE) * np.float32(1 + 1e-6)),
    "nothing": (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)),
    "empty tree": ((), ()),
    "scalars": (np.float32(2.0), jnp.float32(2.0)),
    "keys": (jax.random.key(3), jax.random.key(3)),
    "a tree": ({"a": BASE, "b": (1, BASE)}, {"a": BASE, "b": (1, BASE)}),
}

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "a value": (BASE, BASE + np.float32(1e-3)),
    "one value": (array(1.0, 2.0, 3.0), array(1.0, 2.1, 3.0)),
    "zeros": (np.zeros(3, np.float32), array(0.0, 1e-3, 0.0)),
    "nan in the result": (array(1, 2), array(1, NAN)),
    "nan in the reference": (array(1, NAN), array(1, 2)),
    "nan elsewhere": (array(NAN, 1), array(1, NAN)),
    "infinity in the result": (array(1, 2), array(1, INF)),
    "infinity of another sign": (array(1, INF), array(1, -INF)),
    "infinity for nan": (array(1, NAN), array(1, INF)),
    "an integer": (np.arange(5), np.arange(5) + (np.arange(5) == 3)),
    "a boolean": (array(True, False, dtype=bool), array(True, True, dtype=bool)),
    "shape": (BASE, BASE.T),
    "size": (BASE, BASE[:2]),
    "dtype": (BASE, BASE.astype(np.float64)),
    "signedness": (array(1, dtype=np.int32), array(1, dtype=np.uint32)),
    "imaginary part": (BASE + 1j * BASE, BASE - 1j * BASE),
    "keys": (jax.random.key(3), jax.random.key(4)),
    "keys and numbers": (jax.random.key(3), BASE),
    "missing leaf": ((BASE, BASE), (BASE,)),
    "names": ({"a": BASE}, {"b": BASE}),
    "depth": ((BASE, BASE), (BASE, (BASE,))),
}


@pytest.mark.parametrize(("reference", "result"), EQUAL.values(), ids=EQUAL)
def test_equal_results(reference, result):
    difference = compare_outputs(reference, result)
    assert difference.equal
    assert np.isfinite(difference.relative)


@pytest.mark.parametrize(("reference", "result"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_results(reference, result):
    difference = compare_outputs(reference, result)
    assert not difference.equal
    assert difference.relative > 0


FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "complex64", "float64", "complex128")


@pytest.mark.parametrize("name", FLOATS)
def test_each_dtype_has_its_tolerance(name):
    dtype = jnp.dtype(name)
    limit = TOLERANCE["float8" if name.startswith("float8") else name]
    reference = np.ones(2, dtype)

    def moved(share: float) -> np.ndarray[Any, Any]:
        return np.array([1.0, 1.0 + share * limit]).astype(dtype)

    assert not np.array_equal(moved(0.4), reference)
    assert compare_outputs(reference, moved(0.4)).equal
    assert not compare_outputs(reference, moved(4.0)).equal


def test_slack_widens_the_tolerance():
    moved = BASE * np.float32(1 + 1e-4)
    assert not compare_outputs(BASE, moved).equal
    assert compare_outputs(BASE, moved, slack=10.0).equal
    assert not compare_outputs(np.arange(3), np.arange(3) + 1, slack=1e9).equal
    assert not compare_outputs(array(NAN, 1), array(1, 1), slack=1e9).equal


def test_the_difference_is_relative_to_the_largest_magnitude():
    difference = compare_outputs(array(-100.0, 1.0), array(-100.0, 1.5))
    assert difference.relative == pytest.approx(0.005)
    with_infinity = compare_outputs(array(INF, 10.0), array(INF, 11.0))
    assert with_infinity.relative == pytest.approx(0.1)


def test_the_worst_leaf_is_named():
    reference = {"a": BASE, "b": (BASE, np.arange(3)), "c": BASE}
    close = {**reference, "c": BASE * np.float32(1 + 1e-6)}
    assert compare_outputs(reference, close).leaf == "['c']"
    wrong = {**close, "b": (BASE, np.arange(3)[::-1])}
    difference = compare_outputs(reference, wrong)
    assert (difference.leaf, difference.relative) == ("['b'][1]", np.inf)
    far_but_allowed = {
        "half": np.ones(2, np.float16) + np.float16(0.002),
        "single": np.ones(2, np.float32) + np.float32(1e-4),
    }
    ones = {"half": np.ones(2, np.float16), "single": np.ones(2, np.float32)}
    difference = compare_outputs(ones, far_but_allowed)
    assert not difference.equal
    assert difference.leaf == "['single']", "half is further off, but within its tolerance"


# Times.


def pairs(ratios: Any, seconds: float = 1e-3) -> np.ndarray[Any, Any]:
    """Times of a baseline that takes `ratios` times as long as the candidate."""
    ratios = np.asarray(ratios, np.float64)
    return np.stack([ratios * seconds, np.full_like(ratios, seconds)], axis=1)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        (np.full(9, 2.0), "faster"),
        (np.full(9, 0.5), "slower"),
        (np.full(9, 1.0), "no difference"),
        (np.linspace(1.05, 1.15, 21), "faster"),
        (np.linspace(0.85, 0.95, 21), "slower"),
        (np.linspace(0.8, 1.2, 21), "no difference"),
        ([1.0, 3.0, 0.4, 2.0, 0.5, 0.9, 1.1], "no difference"),
        ([1.5] * 15 + [0.01] * 3, "faster"),
    ],
)
def test_verdicts(ratios, verdict):
    comparison = summarise(pairs(ratios))
    assert comparison.verdict == verdict
    assert comparison.low <= comparison.speedup <= comparison.high
    assert comparison.speedup == pytest.approx(np.median(ratios))
    assert comparison.pairs == len(ratios)


def test_medians_ignore_single_disturbances():
    times = pairs(np.full(11, 1.25))
    times[3] *= 1000  # both of a pair: the machine was busy
    comparison = summarise(times)
    assert comparison.baseline_s == pytest.approx(1.25e-3)
    assert comparison.candidate_s == pytest.approx(1e-3)
    assert (comparison.low, comparison.high) == pytest.approx((1.25, 1.25))


def test_the_same_times_give_the_same_interval():
    times = pairs(np.random.default_rng(0).uniform(0.8, 1.3, 25))
    assert summarise(times, seed=4) == summarise(times, seed=4)
    low, high = summarise(times).low, summarise(times).high
    assert times[:, 0].min() / 1e-3 < low < high < times[:, 0].max() / 1e-3


def test_compare_takes_turns():
    calls: list[str] = []

    def run(name: str) -> Callable[[], None]:
        return lambda: calls.append(name)

    comparison = compare(run("a"), run("b"), budget_s=0.0, min_pairs=4)
    assert isinstance(comparison, Comparison) and comparison.pairs == 4
    runs = [(name, len(list(group))) for name, group in itertools.groupby(calls)]
    assert "".join(name for name, _ in runs) == "ab" + "ababa"
    # The first two runs warm up; then A B, B A, A B, B A, so equal neighbours melt together.
    counts = [count for _, count in runs[2:]]
    assert counts == [counts[0] * factor for factor in (1, 2, 2, 2, 1)]


def test_compare_restores_garbage_collection():
    during: list[bool] = []
    assert gc.isenabled()
    compare(lambda: during.append(gc.isenabled()), lambda: None, budget_s=0.0, min_pairs=1)
    assert gc.isenabled() and not during[-1]
    with pytest.raises(ZeroDivisionError):
        compare(lambda: None, lambda: 1 // 0, budget_s=0.0, min_pairs=1)
    assert gc.isenabled()


# Compiling.


def replace(old: str, new: str) -> Callable[[bytes], bytes]:
    """A transform that turns one operation into another."""

    def transform(data: bytes) -> bytes:
        proto = proto_of(data)
        for computation in proto.computations:
            for instruction in computation.instructions:
                if instruction.opcode == old:
                    instruction.opcode = new
        return bytes(proto.SerializeToString())

    return transform


X = jnp.linspace(0.0, 1.0, 7)


def hook_is_registered() -> bool:
    """Asks XLA itself; removes the registration if there is one."""
    return xla.clear_hlo_module_transformation(name="graphopt", platforms=("cpu",))


def wave(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


def test_without_a_transform_the_default_is_compiled():
    compiled = compile_with(wave, (X,))
    assert compare_outputs(np.sin(X), compiled()).equal
    (data,) = compiled.modules
    assert proto_of(data).name.startswith("jit_")
    assert compiled.args == (X,)
    assert compiled.compile_s > 0.0 and compiled.transform_s == 0.0


def test_the_transform_decides_what_is_compiled():
    compiled = compile_with(wave, (X,), replace("sine", "cosine"))
    assert compare_outputs(np.cos(X), compiled()).equal
    assert compiled.transform_s > 0.0
    passed = compile_with(wave, (X,), lambda data: None)
    assert compare_outputs(np.sin(X), passed()).equal, "the rewrite is not cached"


def test_trees_of_arguments():
    compiled = compile_with(lambda p, n: {"s": p["x"] * n, "n": n}, ({"x": X}, jnp.int32(3)))
    assert compare_outputs({"s": X * 3, "n": jnp.int32(3)}, compiled()).equal


def test_a_jitted_function_is_compiled_as_one_module():
    jitted = jax.jit(wave)
    jitted(X)
    assert compare_outputs(np.cos(X), compile_with(jitted, (X,), replace("sine", "cosine"))()).equal
    assert compare_outputs(np.sin(X), jitted(X)).equal


def test_an_error_of_the_transform_is_raised():
    calls: list[int] = []

    def transform(data: bytes) -> bytes:
        calls.append(len(data))
        raise VerificationError(what="a", where="b", fix="c", rule="layout")

    with pytest.raises(VerificationError) as caught:
        compile_with(wave, (X,), transform)
    assert caught.value.rule == "layout"
    assert len(calls) == 1
    assert not hook_is_registered()
    assert compare_outputs(np.sin(X), jax.jit(lambda x: jnp.sin(x))(X)).equal
    assert len(calls) == 1, "the transform is not asked any more"


def test_a_module_that_xla_refuses():
    with pytest.raises(Exception, match=r"sine|opcode|HLO|shape"):
        compile_with(wave, (X,), replace("sine", "no-such-operation"))
    assert not hook_is_registered()
    assert compare_outputs(np.sin(X), compile_with(wave, (X,))()).equal


def test_modules_are_those_of_a_whole_compile():
    """XLA gives up at the hook, and compiles the same function to its end afterwards."""
    (data,) = modules_of(wave, (X,))
    compiled = compile_with(wave, (X,))
    (whole,) = compiled.modules
    assert build_graph(data).fingerprint == build_graph(whole).fingerprint
    assert compare_outputs(np.sin(X), compiled()).equal
    assert not hook_is_registered()


def test_programs_that_do_not_compile_to_the_end_have_modules():
    def unknown(x: jax.Array) -> Any:
        return jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(KeyError, match="inside"):
        modules_of(untraceable, (X,))
    (data,) = modules_of(unknown, (X,))
    with pytest.raises(jax.errors.JaxRuntimeError):
        compile_with(unknown, (X,))
    assert b"no_such_target" in data


def untraceable(x: jax.Array) -> Any:
    raise KeyError("inside")


def test_an_error_while_tracing_leaves_nothing_behind():
    with pytest.raises(KeyError, match="inside"):
        compile_with(untraceable, (X,))
    assert not hook_is_registered()
    assert compare_outputs(np.sin(X), compile_with(wave, (X,))()).equal


FORKED = """
import os, signal, warnings
import graphopt

warnings.simplefilter("ignore")  # jax's own, of the fork
[graph] = graphopt.capture(abs, 1.0)
print(graph.name, flush=True)
if not os.fork():
    signal.alarm(60)  # ends a child that waits for ever
    try:
        graphopt.capture(abs, 2.0)
    except graphopt.errors.MeasureError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_process_says_why_it_compiles_nothing():
    done = run_python("-c", FORKED)
    name, *error = done.stdout.splitlines()
    assert name == "jit_abs" and "does not survive a fork" in "".join(error), done.stderr


def test_other_subscribers_are_not_asked_meanwhile():
    seen: list[bytes] = []
    subscription = xla_hook.subscribe(lambda data: seen.append(data))
    try:
        compile_with(wave, (X,))
        assert seen == []
        jax.jit(lambda x: jnp.sin(x) + 2.0)(X)
        assert len(seen) == 1
    finally:
        subscription.close()
