"""The step 'native loops': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, native_calls, node, normal
from support.stepping import check_acts, check_acts_on, edit_in, edit_of, fields_of, loop

from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, cost_rows, decide_with

NAME = "native loops"


def test_a_loop_of_small_kernels_becomes_native():
    edit = check_acts(NAME, loop, normal(64))
    assert "unit" in fields_of(edit) and edit.saved_ns > 0


def checkpointed(x):
    """A gradient whose backward loop computes its step again, behind a barrier."""

    def step(c, _):
        return jax.checkpoint(lambda y: jnp.tanh(y * 0.9) + jnp.roll(y, 1))(c), c

    return jax.grad(lambda y: jnp.sum(jax.lax.scan(step, y, None, length=30)[0]))(x)


def test_a_barrier_does_not_keep_a_loop_from_being_native():
    edit = check_acts(NAME, checkpointed, normal(64))
    graph = capture(checkpointed, normal(64)).graph
    around = graph.computations[graph.computation[node(graph, "opt-barrier")]].caller
    chosen = graph.units[edit.applied_to(graph.default).unit[around]]
    assert chosen.kind is UnitKind.NATIVE


def sums_of_columns(x):
    """A loop of small kernels that adds up the columns of what it computes from two arrays, too."""

    def step(c, factor):
        sums = jnp.sum(c * (x - factor), axis=0)
        for _ in range(30):
            sums = jnp.roll(sums, 1) * 0.99
        return c * 0.9 + sums * 1e-3, sums

    return jax.lax.scan(step, x + 1.0, jnp.linspace(0.0, 1.0, 30))


def test_sums_of_columns_are_made_in_slices_of_what_is_written_first():
    with decide_with(cost_rows.QUICK_CALLS):
        edit = check_acts(NAME, sums_of_columns, normal(64, 64))
        graph = capture(sums_of_columns, normal(64, 64)).graph
    decisions = edit.applied_to(graph.default)
    loop = graph.computations[graph.computation[node(graph, "reduce")]]
    (reduce,) = (n for n in range(loop.first, loop.end) if graph.ops[n].name == "reduce")
    assert decisions.restructure[reduce] == CODE["slice-reduce"]
    assert graph.default.fuse[graph.operand_lists[reduce][0]]
    assert not decisions.fuse[graph.operand_lists[reduce][0]]


@pytest.mark.parametrize("dims", [(40, 64), (32, 256)], ids=["few elements", "few rows"])
def test_short_columns_are_left_alone(dims):
    with decide_with(cost_rows.QUICK_CALLS):
        graph = capture(sums_of_columns, normal(*dims)).graph
        edit = edit_in(graph, NAME)
    assert not (edit.applied_to(graph.default).restructure == CODE["slice-reduce"]).any()


def few_numbers(x):
    """A loop over so few numbers that every jaxlib makes it native, with a short loop inside."""

    def step(_, c):
        return jax.lax.fori_loop(0, 3, lambda i, d: d * 0.5 + i, c)

    return jax.lax.fori_loop(0, 20, step, x)


def test_a_short_loop_inside_one_that_is_native_by_default_is_written_out():
    edit = check_acts_on(capture(few_numbers, normal(2)), NAME)
    assert fields_of(edit) == {"restructure"}


def test_what_is_native_by_default_and_has_nothing_to_change_stays():
    def halves(x):
        return jax.lax.fori_loop(0, 20, lambda _, c: c * 0.5, x)

    assert edit_in(capture(halves, normal(2)).graph, NAME) is None


def test_a_program_without_a_loop_stays():
    assert edit_of(NAME, jnp.tanh, normal(64, 64)) is None


def test_a_loop_whose_work_is_split_over_cores_stays():
    def sieve(numbers):
        def strike(i, prime):
            return jnp.where(prime[i], prime & ~((numbers % i == 0) & (numbers > i)), prime)

        return jax.lax.fori_loop(2, 142, strike, numbers >= 2)

    assert edit_of(NAME, sieve, jnp.arange(20_000)) is None


def test_a_loop_of_large_products_stays():
    def products(x):
        return jax.lax.fori_loop(0, 20, lambda _, c: jnp.tanh(c @ x), x)

    assert edit_of(NAME, products, normal(256, 256)) is None


def test_what_only_tiles_make_vector_code_of_stays_in_tiles():
    numbers = jnp.arange(1, 1025, dtype=jnp.int32)
    program = capture(jnp.gcd, numbers, numbers[::-1])
    if native_calls(program.data):
        pytest.skip("this jaxlib makes the loop native itself")
    with decide_with(cost_rows.default_costs("0.11.2")):
        assert edit_in(program.graph, NAME) is None
    with decide_with(cost_rows.default_costs("0.10.2")):  # whose tiles are scalar code as well
        assert edit_in(program.graph, NAME) is not None


def test_a_loop_gains_nothing_unknown_beside_its_products():
    """What the estimate does not know is no reason for native code where products take most of the time."""

    def functions(x):
        return jnp.tanh(jnp.exp(jnp.sin(x)))

    def with_products(x, w):
        step = lambda _, c: functions(c @ w)[:, :64] * jax.nn.sigmoid(c)  # noqa: E731
        return jax.lax.fori_loop(0, 32, step, x)

    def without(x, w):
        step = lambda _, c: functions(jnp.tile(c, (1, 4)) + w)[:, :64]  # noqa: E731
        return jax.lax.fori_loop(0, 32, step, x)

    with decide_with(cost_rows.default_costs("0.11.2")):
        assert edit_of(NAME, with_products, normal(8, 64), normal(64, 256)) is None
        assert edit_of(NAME, without, normal(8, 64), normal(8, 256)) is not None


def test_what_is_unknown_does_not_outweigh_what_is_lost():
    """Native code cannot call the library for sums of rows: what that costs is no matter of a guess."""

    def normalised(x):
        for _ in range(4):
            x = jnp.exp(-x * x) / (1e-3 + jnp.sum(x, axis=-1, keepdims=True))
        return x

    def iterated(x):
        return jax.lax.fori_loop(0, 16, lambda _, c: normalised(c), x)

    with decide_with(cost_rows.default_costs("0.11.2")):
        # So few rows are summed by loops in either case, and nothing is lost.
        assert edit_of(NAME, iterated, normal(16, 64)) is not None
        assert edit_of(NAME, iterated, normal(64, 64)) is None


def test_what_is_unknown_does_not_outweigh_scatters_that_take_longer():
    """XLA counts in a loop of its own, faster than native code does."""

    def counts_in(codes):
        def step(row, _):
            code = (4 * jnp.roll(row, 1) + 2 * row + jnp.roll(row, -1)) % 8
            counts = jnp.bincount(code, length=8)
            return (code * 3 + counts[code]) % 8, counts

        return jax.lax.scan(step, codes, None, length=50)

    def kept_apart(codes):
        def step(row, _):
            code = (4 * jnp.roll(row, 1) + 2 * row + jnp.roll(row, -1)) % 8
            return (code * 3 + jnp.arange(8)[code]) % 8, code[:8]

        return jax.lax.scan(step, codes, None, length=50)

    codes = jnp.arange(900, dtype=jnp.int32) % 8
    with decide_with(cost_rows.QUICK_CALLS):
        assert edit_of(NAME, counts_in, codes) is None
        assert edit_of(NAME, kept_apart, codes) is not None


def test_what_is_unknown_does_not_outweigh_places_of_several_indices():
    """Native code joins the indices of each element where a kernel of its own does that faster."""
    table = jnp.arange(16_384.0).reshape(128, 128)

    def of_two(rows):
        def step(_, state):
            total, row = state
            found = table[row, row ^ 5]
            return total + found, (row + 1) & 127

        return jax.lax.fori_loop(0, 50, step, (jnp.zeros(rows.shape), rows))

    def of_one(rows):
        def step(_, state):
            total, row = state
            found = table[0][row ^ 5]
            return total + found, (row + 1) & 127

        return jax.lax.fori_loop(0, 50, step, (jnp.zeros(rows.shape), rows))

    rows = jnp.arange(900, dtype=jnp.int32) & 127
    with decide_with(cost_rows.QUICK_CALLS):
        assert edit_of(NAME, of_two, rows) is None
        assert edit_of(NAME, of_one, rows) is not None
