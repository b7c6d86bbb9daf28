"""The step 'little kernels': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "little kernels"
BEFORE = ("short reductions",)
X, Y = normal(512, 512), normal(64, 128)


def changed(y):
    """What a step before changes, so that the program is written again anyway."""
    return jnp.sum(y * y, axis=1)


def large_and_little(x, y, a, b):
    return jnp.tanh(jnp.sin(x)), changed(y), 2.0 * a + 1.0, b - 3.0, jnp.abs(a)


def test_little_kernels_beside_a_large_one_become_native():
    edit = check_acts(NAME, large_and_little, X, Y, normal(17), normal(33), after=BEFORE)
    assert fields_of(edit) == {"unit"} and edit.nodes == 3


def test_a_program_that_nothing_else_changes_is_left_alone():
    assert edit_of(NAME, large_and_little, X, Y, normal(17), normal(33)) is None


def test_equal_ones_stay_as_xla_compiles_them_once():
    def program(x, y, a, b):
        little = [fn(z) for z in (a, b) for fn in (lambda z: 2.0 * z + 1.0, jnp.abs)]
        return jnp.tanh(jnp.sin(x)), changed(y), *little

    assert edit_of(NAME, program, X, Y, normal(33), normal(33), after=BEFORE) is None


def test_where_kernels_run_beside_each_other_those_that_wait_stay():
    """XLA runs each as soon as it may; one function would wait for all that it reads."""

    def beside(x, *little):
        return (
            *(jnp.tanh(jnp.sin(number * x)) for number in range(2, 14)),
            *large_and_little(*little),
        )

    def waiting(x, y, a, b):
        return large_and_little(x, y, a @ a, b @ b)

    def beside_waiting(x, y, a, b):
        return beside(x, x, y, a @ a, b @ b)

    args = X, Y, normal(17, 17), normal(33, 33)
    assert edit_of(NAME, waiting, *args, after=BEFORE).nodes == 3
    assert edit_of(NAME, beside_waiting, *args, after=BEFORE) is None
    assert edit_of(NAME, beside, X, *args, after=BEFORE).nodes == 3


def test_kernels_that_are_much_of_the_program_stay():
    args = normal(16), Y, normal(1700), normal(3300)
    assert edit_of(NAME, large_and_little, *args, after=BEFORE) is None


def test_two_are_not_worth_a_function():
    def program(x, y, a):
        return jnp.sin(x), changed(y), a - 3.0, jnp.abs(a)

    assert edit_of(NAME, program, X, Y, normal(33), after=BEFORE) is None
