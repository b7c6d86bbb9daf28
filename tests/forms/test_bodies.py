"""Operations that stand in bodies of loops and in branches."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from graphopt.forms.bodies import stands_in_body

INSIDE = {
    "scan": lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, 3)[0],
    "for": lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), x),
    "condition": lambda x: lax.while_loop(lambda c: jnp.sin(c).sum() < 9, lambda c: c + 1, x),
    "branch": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "function in a loop": lambda x: lax.fori_loop(0, 3, lambda _, c: jax.jit(jnp.sin)(c), x),
    "loop in a function": lambda x: jax.jit(INSIDE["scan"])(x),
    "checkpointed": lambda x: lax.fori_loop(0, 3, lambda _, c: jax.checkpoint(jnp.sin)(c), x),
    "outside, another inside": lambda x: jnp.sin(x) + INSIDE["for"](x),
    "inside twice": lambda x: INSIDE["for"](x) + INSIDE["branch"](x),
}
OUTSIDE = {
    "outside": lambda x: jnp.sin(x),
    "in a function": lambda x: jax.jit(jnp.sin)(x),
    "before a loop": lambda x: lax.fori_loop(0, 3, lambda _, c: c + 1, jnp.sin(x)),
    "of other types": lambda x: jnp.sin(x) + INSIDE["for"](x[:2]).sum(),
    "of no operation": lambda x: jnp.sin(x) + lax.fori_loop(0, 3, lambda _, c: jnp.cos(c), x),
}


def levels(fn):
    """A sine of x's type in a traced function, and that function's own program."""
    x = jnp.ones(4)
    outermost = jax.make_jaxpr(fn)(x).jaxpr
    sine = jax.make_jaxpr(lambda v: lax.sin_p.bind(v, accuracy=None))(x).jaxpr
    return [(sine, sine.eqns[0]), (outermost, None)]


@pytest.mark.parametrize("name", list(INSIDE))
def test_an_operation_in_a_body(name):
    assert stands_in_body(levels(INSIDE[name]))


@pytest.mark.parametrize("name", list(OUTSIDE))
def test_an_operation_outside_of_bodies(name):
    assert not stands_in_body(levels(OUTSIDE[name]))


def test_a_program_is_searched_once_for_each_function_in_it():
    deep = jnp.sin
    for _ in range(40):
        deep = jax.jit(lambda x, inner=deep: inner(x) + inner(x))
    assert not stands_in_body(levels(deep))
