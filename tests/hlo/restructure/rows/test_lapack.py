"""Small factorizations and solves as loops agree with LAPACK."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.scipy.linalg import solve_triangular
from support.restructured import run_program

from graphopt.measure import compare_outputs

NAME = "lapack-loop"


def matrices(seed: int, *dims: int) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(dims) + 3 * np.eye(dims[-2], dims[-1])).astype(np.float32)


def check(fn: Any, *args: Any) -> None:
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        difference = compare_outputs(wanted, got)
        assert difference.equal, difference


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 9), st.sampled_from([(), (1,), (3,), (2, 2)]), st.integers(0, 99))
def test_cholesky(order, batch, seed):
    a = matrices(seed, *batch, order, order)
    # The unit matrix bounds the condition number, by which two right factors may differ.
    check(jnp.linalg.cholesky, a @ np.swapaxes(a, -1, -2) + np.eye(order, dtype=np.float32))


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 9), st.integers(0, 99), st.floats(1e-5, 1e-1))
@example(5, 9, 1.0)
def test_the_product_of_a_cholesky_factor_is_the_matrix(order, seed, scale):
    """However badly conditioned: a stable factorization has a small backward error."""
    a = matrices(seed, order, order)
    a[-1] *= np.float32(scale)
    matrix = a @ a.T
    _, results = run_program(jnp.linalg.cholesky, (matrix,), NAME)
    for factor in results:
        lower = np.asarray(factor, np.float64)
        error = np.abs(lower @ lower.T - matrix).max() / np.abs(matrix).max()
        assert np.isfinite(lower).all() and error < 4 * order * np.finfo(np.float32).eps


@settings(max_examples=16, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from([(), (1,), (3,)]), st.integers(0, 99))
def test_lu_chooses_lapacks_pivots(rows, columns, batch, seed):
    a = np.random.default_rng(seed).standard_normal((*batch, rows, columns)).astype(np.float32)
    check(jax.lax.linalg.lu, a)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_solves(lower, transposed, unit, left):
    a = matrices(5, 2, 6, 6)

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=bool(transposed), unit_diagonal=unit
        )

    check(fn, a, matrices(6, *((2, 6, 4) if left else (2, 4, 6))))


def test_solve_in_a_loop_of_double_precision_and_its_gradient():
    with jax.enable_x64(True):

        def loss(a: jax.Array, b: jax.Array) -> jax.Array:
            def step(x: jax.Array, _: None) -> Any:
                return jnp.linalg.solve(a + 0.1 * jnp.diag(x), b), None

            return jnp.sum(jax.lax.scan(step, b, None, length=5)[0] ** 2)

        check(jax.value_and_grad(loss), matrices(1, 5, 5).astype(np.float64), np.ones(5))


def test_a_singular_matrix_gives_what_lapack_gives():
    a = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
    check(lambda a: (jax.lax.linalg.lu(a)[1:], jnp.linalg.cholesky(a @ a.T - 2 * jnp.eye(3))), a)


def test_a_solve_by_cholesky_in_a_loop():
    def fn(a: jax.Array, b: jax.Array) -> Any:
        def step(x: jax.Array, shift: jax.Array) -> Any:
            factor = jnp.linalg.cholesky(a @ a.T + shift * jnp.eye(4))
            half = solve_triangular(factor, x + b, lower=True)
            return solve_triangular(factor.T, half, lower=False), factor[2]

        return jax.lax.scan(step, b, jnp.arange(1.0, 6.0))

    check(fn, matrices(2, 4, 4), np.ones(4, np.float32))
