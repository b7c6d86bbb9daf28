"""Elementwise kernels from the loop code generator: the same results, bit for bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import MACHINE, capture, changed, nodes, normal, unit
from support.forks import run_forked
from support.restructured import everywhere, run_program

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.graph.layouts import flat_form
from graphopt.hlo.graph.walks import fused_into, inputs_of
from graphopt.hlo.module.layouts import FlatForm
from graphopt.hlo.restructure import CODE, replacing
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs, compile_with

NAME = "loop-kernel"
CHAINS = {
    "sum": lambda x, y: x + y,
    "polynomial": lambda x, y: (x * y + x) * x - y,
    "larger": lambda x, y: jnp.where(x > y, x, y - x),
    "exclusive": lambda x, y: (x & ~y) | (y ^ x),
}


def assert_same_bits(default: Any, results: list[Any]) -> None:
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(default)]
    for result in results:
        for want, got in zip(expected, jax.tree.leaves(result), strict=True):
            assert want.tobytes() == np.asarray(got).tobytes()


@settings(max_examples=12, deadline=None)
@given(
    chain=st.sampled_from(["sum", "polynomial", "larger"]),
    dims=st.sampled_from([(1024,), (1000, 3), (37, 33), (2, 3, 4, 50), (96, 256)]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "int32", "int8", "int16", "bool"]),
)
def test_results_are_bit_equal_whatever_the_shape_and_type(chain, dims, dtype):
    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, y = (rng.uniform(-9, 9, dims) for _ in range(2))
    if dtype == "bool":
        chain, x, y = "exclusive", x > 0, y > 0
    x, y = x.astype(kind), y.astype(kind)
    default, results = run_program(CHAINS[chain], (x, y), NAME)
    assert_same_bits(default, results[:1])


BIASED = {
    "bias": lambda x, b, s: x + b,
    "scale": lambda x, b, s: jnp.maximum((x - b) * s + b, 0),
    "of rows": lambda x, b, s: x * (b * s + b) - jnp.maximum(s, b),
    "whole and rows": lambda x, b, s: jnp.where(x > b, x * x, s),
}
ROWS = {
    (512, 32): 1,
    (64, 20): 1,
    (1568, 16): 1,
    (8, 14, 14, 16): 1,
    (96, 33): 1,
    (64, 6, 10): 2,
    (448, 7): 1,
}
"""Dimensions of an array -> how many of the last ones a row has."""


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(list(BIASED)),
    dims=st.sampled_from(list(ROWS)),
    dtype=st.sampled_from(["float32", "float64", "float16", "int32", "int8"]),
    looped=st.booleans(),
)
def test_what_all_rows_read_alike_is_repeated(name, dims, dtype, looped):
    rng = np.random.default_rng(0)
    own = dims[-ROWS[dims] :]
    with jax.enable_x64(True):
        args = [jnp.asarray(rng.uniform(-9, 9, d), dtype) for d in (dims, own, own)]

        def fn(x, b, s):
            if not looped:
                return BIASED[name](x, b, s)
            return jax.lax.fori_loop(0, 3, lambda _, x: BIASED[name](x, b, s).astype(x.dtype), x)

        default, results = run_program(fn, args, NAME)
    assert_same_bits(default, results[:1])


@pytest.mark.parametrize("dims", list(ROWS))
def test_these_programs_have_such_kernels(dims):
    graph = capture(lambda x, b: x + b, normal(*dims), normal(*dims[-ROWS[dims] :])).graph
    (root,) = nodes(graph, "add")
    members = fused_into(graph, graph.default.fuse, root)
    form = flat_form(graph, root, members, inputs_of(graph, members))
    assert form is not None and form.row * form.times > dims[-1]


def test_rows_that_fill_vectors_are_computed_as_one():
    x, b = normal(512, 20), normal(20)
    graph = capture(lambda x, b: jnp.tanh(x + b), x, b).graph
    (root,) = nodes(graph, "tanh")
    members = fused_into(graph, graph.default.fuse, root)
    assert flat_form(graph, root, members, inputs_of(graph, members)) == FlatForm(20, 8)
    again = build_graph(rewrite(graph, everywhere(graph, NAME)).data)
    (root,) = nodes(again, "tanh")
    assert again.dim_lists[root] == [64, 160]
    assert sum(again.dim_lists[node] == [8, 20] for node in nodes(again, "broadcast")) == 1


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x, b: x + b[:, None], ((512, 20), (512,))),
        (lambda x, b: x + b[:, None, :], ((64, 6, 10), (64, 10))),
        (lambda x, b: x + b, ((37, 20), (20,))),  # no number of rows divides them
        (lambda x, b: x + b, ((16, 20), (20,))),  # too few of them
        (lambda x, b: x + b, ((37, 100), (100,))),  # long enough, and no two are one
    ],
)
def test_other_kernels_keep_their_rows(fn, shapes):
    graph = capture(fn, *(normal(*shape) for shape in shapes)).graph
    (root,) = nodes(graph, "add")
    members = fused_into(graph, graph.default.fuse, root)
    assert flat_form(graph, root, members, inputs_of(graph, members)) is None


def test_one_array_is_repeated_once_for_several_kernels():
    def fn(x, y, b):
        return x + b, jnp.maximum(y, b)

    args = normal(512, 20), normal(256, 20, seed=1), normal(20)
    graph = capture(fn, *args).graph
    again = build_graph(rewrite(graph, everywhere(graph, NAME)).data)
    assert sorted(again.dim_lists[n] for n in nodes(again, "add")) == [[64, 160]]
    assert [again.dim_lists[n] for n in nodes(again, "maximum")] == [[32, 160]]
    assert sum(again.dim_lists[n] == [8, 20] for n in nodes(again, "broadcast")) == 1
    wanted, results = run_program(fn, args, NAME)
    assert_same_bits(wanted, results[:1])


def test_what_a_loop_repeats_and_changes_is_repeated_each_time():
    def fn(x, b):
        def step(_, carry):
            x, b = carry
            return x * 0.5 + b, b * 0.9

        return jax.lax.fori_loop(0, 4, step, (x, b))

    wanted, results = run_program(fn, (normal(512, 20), normal(20)), NAME)
    assert_same_bits(wanted, results[:1])


WAVES = {
    "product": lambda z, w: z * w,
    "cubic": lambda z, w: (z * w - z) * w,
    "power": lambda z, w: jnp.real(z) ** 2 + jnp.imag(z) ** 2,
    "damped": lambda z, w: jnp.exp(-jnp.real(w)) * z,
    "parts": lambda z, w: jax.lax.complex(jnp.tanh(jnp.imag(z)), jnp.real(w)),
    "turned": lambda z, w: jnp.conj(z) * w,
    "quotient": lambda z, w: z / w,
    "equal": lambda z, w: z * w == w,
    "as real": lambda z, w: jnp.abs(z * w),
}


PRODUCTS = ("product", "cubic")
ROUNDS_PRODUCTS_ALIKE = jax.__version_info__ < (0, 12)
"""From 0.12 on one of XLA's two generators fuses the multiplications and additions of a complex product."""


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", list(WAVES))
def test_kernels_of_complex_numbers_are_bit_equal_at_all_values(name, dtype):
    rng = np.random.default_rng(0)
    z, w = ((rng.normal(size=(32, 48)) + 1j * rng.normal(size=(32, 48))) for _ in range(2))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 3e38])
    z.real.flat[:49], z.imag.flat[:49] = np.repeat(special, 7), np.tile(special, 7)
    with jax.enable_x64(True), np.errstate(over="ignore"):
        default, results = run_program(WAVES[name], (z.astype(dtype), w.astype(dtype)), NAME)
    if name in PRODUCTS and not ROUNDS_PRODUCTS_ALIKE:
        # Of the largest numbers one rounding decides whether their products are infinite.
        fits = ~np.isfinite(z) | (np.abs(z) < 1e38)
        assert compare_outputs(np.asarray(default)[fits], np.asarray(results[0])[fits]).equal
    else:
        assert_same_bits(default, results[:1])


def accumulate(x: jax.Array, y: jax.Array) -> Any:
    """A loop that updates two of its arrays in place, and keeps the earlier values of one."""

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> Any:
        total, last = carry
        return (total + last, last * y), total

    return jax.lax.scan(step, (x, y), None, length=5)


def test_sums_in_place_stay_in_place():
    default, results = run_program(accumulate, (normal(48, 64), normal(48, 64, seed=1)), NAME)
    assert_same_bits(default, results[:1])


def test_the_last_operation_is_one_that_the_tiled_generator_refuses():
    program = capture(CHAINS["polynomial"], normal(64, 96), normal(64, 96, seed=1))
    again = build_graph(rewrite(program.graph, everywhere(program.graph, NAME)).data)
    (mark,) = nodes(again, "bitcast-convert")
    assert not again.default.fuse[mark] and again.default.fuse[again.operand_lists[mark][0]]
    assert again.dtype[mark] == again.dtype[again.operand_lists[mark][0]]


SCRIPT = """
import jax.numpy as jnp, jax, graphopt
graphopt.install({policy!r})
x = jnp.ones((512, 384))
# No jaxlib makes a loop native that sorts.
step = lambda x: lambda i, c: (c[0] * x, jnp.sort(c[1]))
jax.block_until_ready(jax.jit(lambda x: jax.lax.fori_loop(0, 9, step(x), (x, x[0])))(x))
"""


@pytest.mark.parametrize(("policy", "tiled"), [("xla-default", True), ("heuristic", False)])
def test_xla_takes_its_other_generator(policy, tiled, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    done = run_forked(SCRIPT.format(policy=policy), env={"XLA_FLAGS": flags})
    assert done.returncode == 0, done.stderr
    # The tiled generator names its LLVM modules otherwise than the loop generator.
    kernels = [path.name for path in tmp_path.glob("*lambda*.obj-file.*multiply*.o")]
    assert kernels and any("__compute_module" in name for name in kernels) is tiled


def rule(fn: Any, *args: Any) -> str | None:
    """The rule that forbids the row at the root of a program of one kernel."""
    graph = capture(fn, *args).graph
    root = int(graph.operand_lists[-1][0]) if graph.ops[-1].name == "tuple" else len(graph) - 1
    return graph.masks.why_not(root, "restructure", CODE[NAME])


def test_only_kernels_of_the_tiled_generator_are_written_anew():
    x = normal(32, 64)
    assert rule(lambda x: x * x + x, x) is None
    assert rule(lambda x: x * x + x, normal(15, 64)) == "small-kernel"
    assert rule(lambda x: x * x + x, normal(31, 33)) is None  # its rows leave elements over
    assert rule(lambda x: x * x + x, normal(31, 32)) is None  # LLVM unrolls its rows
    assert rule(lambda x: x * 3.0 + x, x) == "not-tiled"  # a broadcast
    assert rule(lambda x: x + x[:, ::-1], x) == "not-tiled"
    assert rule(lambda x: x + x, x.astype(np.uint32)) == "not-tiled"
    assert rule(lambda x: x > x * x, x) is None
    assert rule(lambda x: x * x + x, x.astype(np.complex64)) is None
    assert rule(lambda x: jnp.real(x) + jnp.imag(x), x.astype(np.complex64)) is None
    assert rule(lambda x: (x * x + x).reshape(64, 32), x) is None
    assert rule(lambda x: x.reshape(64, 32), x) is not None


def test_the_choice_stays_when_operations_are_replaced():
    def fn(x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.scan(lambda c, _: (c * y + c, jnp.sort(c[0, :4])), x, None, length=3)

    program = capture(fn, normal(16, 64), normal(16, 64, seed=1))
    graph = program.graph
    decisions = everywhere(graph, NAME)
    (sort,) = nodes(graph, "sort")
    decisions = changed(decisions, restructure={sort: CODE["rank-sort"]})
    result = rewrite(graph, decisions)
    assert result.restructured == 1
    assert nodes(build_graph(result.data), "bitcast-convert")
    assert_same_bits(program.result, [program.compile(result.data)()])


def test_native_kernels_and_joined_ones_need_no_mark():
    program = capture(lambda x, y: (x + y, x * y), normal(64, 64), normal(64, 64, seed=1))
    graph = program.graph
    decisions = everywhere(graph, NAME)
    native = unit(graph, UnitKind.NATIVE)
    roots = np.flatnonzero(decisions.restructure).tolist()
    assert len(roots) == 2
    for other in (
        changed(decisions, unit=dict.fromkeys(roots, native)),
        changed(decisions, join={roots[1]: 1}),
    ):
        data = rewrite(graph, other).data
        assert not nodes(build_graph(data), "bitcast-convert")
        assert_same_bits(program.result, [program.compile(data)()])


def test_codes_of_kernels_replace_nothing():
    codes = np.array([0, CODE["unroll"], CODE[NAME]], np.int8)
    assert replacing(codes).tolist() == [0, CODE["unroll"], 0]
    assert replacing(codes[2:]).dtype == np.int8


FUNCTIONS = {
    "arithmetic": lambda x, y: (x * y + 0.5) * x,
    "tanh": lambda x, y: jnp.tanh(x) - y,
    "choice": lambda x, y: jnp.where(x > y, jnp.exp(-x), jnp.clip(y, -1.0, 1.0)),
    "whole numbers": lambda x, y: (x * 100).astype(jnp.int32) // 7 + (y > 0),
    "several": lambda x, y: (jnp.sin(x) * y, x + y),
}


@pytest.mark.parametrize(
    "dims",
    [(3, 10), (16, 20), (5, 33), (2, 3, 7), (40, 1, 3), (4, 100), (9, 16), (2, 5, 48)],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_rows_are_written_as_one(name: str, dims: tuple[int, ...]) -> None:
    x, y = normal(*dims), normal(*dims, seed=1)

    def loop(x: Any, y: Any) -> Any:
        def step(_: int, x: Any) -> Any:
            return 0.9 * x + 0.1 * jnp.asarray(jax.tree.leaves(FUNCTIONS[name](x, y))[0], x.dtype)

        return jax.lax.fori_loop(0, 4, step, x)

    for fn in (FUNCTIONS[name], loop):
        wanted, results = run_program(fn, (x, y), NAME)
        for got in results:
            assert compare_outputs(wanted, got).equal


def written(fn: Any, *args: Any) -> Any:
    """The graph of a program all of whose kernels are written in the row."""
    program = capture(fn, *args)
    return build_graph(rewrite(program.graph, everywhere(program.graph, NAME)).data)


def test_arrays_of_such_kernels_have_one_dimension():
    again = written(lambda x: jnp.tanh(x) * x, normal(16, 33))
    (root,) = nodes(again, "tanh")
    assert again.dim_lists[root] == [16 * 33]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.tanh(x) + jnp.arange(33.0),
        lambda x: jnp.tanh(x) * x[:, :1],
        lambda x: jnp.tanh(x).T + x.T[::-1],
        lambda x: jnp.tanh(x[:, :30]),
        lambda x: jnp.tanh(x.reshape(11, 48)[:, :32]) * 2.0,
    ],
)
def test_what_reads_rows_keeps_its_dimensions(fn: Any) -> None:
    assert rule(fn, normal(16, 33)) in ("not-tiled", "small-kernel")


def test_what_reads_long_rows_of_whole_vectors_keeps_its_dimensions() -> None:
    assert rule(lambda x: jnp.tanh(x) * 2.0, normal(8, 64)) == "small-kernel"


def test_such_a_kernel_is_split_over_cores_along_its_one_dimension():
    fn, x = lambda x: jnp.tanh(x) * x, normal(1, 5000, 33)
    graph = capture(fn, x).graph
    decisions = everywhere(graph, NAME)
    (root,) = np.flatnonzero(decisions.restructure)
    assert graph.units[decisions.unit[root]].threads > 1
    assert build_graph(rewrite(graph, decisions).data).dim_lists[root - 1] == [5000 * 33]
    wanted, results = run_program(fn, (x,), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_outputs_of_one_kernel_have_one_dimension_together():
    fn, args = FUNCTIONS["several"], (normal(64, 33), normal(64, 33, seed=1))
    default = compile_with(fn, args)
    graph = build_graph(max(default.modules, key=len), MACHINE)
    decisions = everywhere(graph, NAME)
    roots = np.flatnonzero(decisions.restructure)
    decisions.join[roots] = graph.masks.join[roots, 1]
    assert decisions.join[roots].any()
    data = rewrite(graph, decisions).data
    again = build_graph(data, MACHINE)
    outputs = nodes(again, "get-tuple-element")
    assert [again.dim_lists[node] for node in outputs] == [[64 * 33]] * 2
    got = compile_with(fn, args, lambda _: data)()
    assert compare_outputs(default(), got).equal


def test_loops_that_xla_makes_native_stay_as_they_are_unless_it_is_decided():
    def fn(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda _, x: jnp.tanh(x) * 0.5, x)

    graph = capture(fn, normal(2, 40)).graph
    (loop,) = nodes(graph, "while")
    if graph.units[graph.default.unit[loop]].kind is not UnitKind.NATIVE:
        pytest.skip("this XLA leaves the loop to its kernels")
    for decisions, dims in ((graph.default, [2, 40]), (everywhere(graph, NAME), [80])):
        again = build_graph(rewrite(graph, decisions).data)
        assert [again.dim_lists[node] for node in nodes(again, "tanh")] == [dims]
