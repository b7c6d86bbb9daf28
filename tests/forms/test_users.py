"""Functions that XLA's kernel library computes with the reduction that reads them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import normal

from graphopt.forms import enabled
from graphopt.forms.users import are_reduced, are_sliced
from graphopt.machine import own_costs

REDUCED = {
    "sum": lambda x: jnp.sin(x).sum(1),
    "mean of all": lambda x: jnp.sin(x).mean(),
    "largest": lambda x: jnp.sin(x).max(0),
    "square": lambda x: (jnp.sin(x) ** 2).sum(),
    "norm": lambda x: jnp.linalg.norm(jnp.sin(x)),
    "differences": lambda x: jnp.sin(x[0][:, None] - x[1]).sum(1),
    "product of two": lambda x: (jnp.sin(x) * jnp.cos(x)).sum(1),
    "two sums": lambda x: (jnp.sin(x).sum(1), jnp.sin(x + 1.0).sum(1)),
    "in a function": lambda x: jax.jit(jnp.sin)(x).sum(1),
    "by a function": lambda x: jax.jit(lambda v: v.sum(1))(jnp.sin(x)),
    "by two functions": lambda x: jax.jit(lambda v: jax.jit(lambda w: 2 * w)(v).sum(1))(jnp.sin(x)),
    "narrow": lambda x: jnp.sin(x).astype(jnp.bfloat16).astype(jnp.float32).sum(1),
}
OTHERS = {
    "result": lambda x: jnp.sin(x),
    "also a result": lambda x: (v := jnp.sin(x), v.sum(1)),
    "read twice": lambda x: (v := jnp.sin(x)).sum(1) + v.max(1),
    "selected": lambda x: jnp.where(x > 0, jnp.sin(x), 0.0).sum(1),
    "multiplied": lambda x: jnp.sin(x) @ x.T,
    "product": lambda x: jnp.sin(x).prod(1),
    "returned twice": lambda x: jax.jit(lambda v: (jnp.sin(v), v))(x)[0],
    "selected by a function": lambda x: jax.nn.leaky_relu(jnp.sin(x)).sum(1),
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x).sum(1),
    "small": lambda x: jnp.sin(x[:4]).sum(1),
    "another like it": lambda x: (jnp.sin(x).sum(1), jnp.sin(x + 1.0)),
}


def levels(fn):
    """The first sine of a traced function, in its program and those around it."""
    jaxpr = jax.make_jaxpr(fn)(normal(128, 128)).jaxpr
    found = []
    while not any(e.primitive.name == "sin" for e in jaxpr.eqns):
        call = next(e for e in jaxpr.eqns if "jaxpr" in e.params)
        found.insert(0, (jaxpr, call))
        jaxpr = call.params["jaxpr"].jaxpr
    return [(jaxpr, next(e for e in jaxpr.eqns if e.primitive.name == "sin")), *found]


@pytest.mark.parametrize("name", list(REDUCED))
def test_what_only_a_reduction_reads_is_the_librarys(name):
    assert are_reduced(levels(REDUCED[name]))


@pytest.mark.parametrize("name", list(OTHERS))
def test_anything_else_is_not(name):
    assert not are_reduced(levels(OTHERS[name]))


@pytest.mark.parametrize(
    ("fn", "sliced"),
    [
        (lambda x: jnp.sin(x)[:3], True),
        (lambda x: (v := jnp.sin(x))[:3, None] * v[None, 5:8], True),
        (lambda x: jax.lax.dynamic_slice(jnp.sin(x), (x[0, 0].astype(int), 3), (4, 4)), True),
        (lambda x: jnp.sin(x)[:100], False),
        (lambda x: (v := jnp.sin(x), v[:3]), False),
        (lambda x: (v := jnp.sin(x))[:3] + v.sum(0), False),
        (lambda x: (jnp.sin(x)[:3], jnp.sin(x + 1.0)), False),
    ],
)
def test_only_parts_are_read(fn, sliced):
    assert are_sliced(levels(fn)) is sliced
    with enabled(["wide-functions"], always=True):
        text = jax.jit(lambda x: fn(x)).lower(normal(128, 128)).as_text()
    assert ("optimization_barrier" not in text) is sliced


def test_forms_leave_them_to_a_library_that_knows_them():
    x = normal(512, 512)

    def forms(fn):
        with enabled() as choices:
            jax.jit(lambda x: fn(x)).lower(x)
        return {choice.operation.primitive for choice in choices if choice.form is not None}

    known = {"sin", "cos"} & set(own_costs().reduced_functions)
    assert forms(REDUCED["product of two"]) == {"sin", "cos"} - known
    assert forms(OTHERS["selected"]) == {"sin"}
    assert forms(lambda x: jnp.arctan(x).sum(1)) == {"atan"}


def test_so_do_those_of_double_precision():
    def forms(fn):
        with jax.enable_x64(True), enabled() as choices:
            jax.jit(lambda x: fn(x)).lower(normal(512, 1024).astype(np.float64))
        return {choice.operation.primitive for choice in choices if choice.form is not None}

    known = {"sin", "log1p"} & set(own_costs().reduced_functions)
    assert forms(lambda x: (jnp.sin(x) + jnp.log1p(x)).sum(1)) == {"sin", "log1p"} - known
    assert forms(lambda x: jnp.sin(x) + jnp.log1p(x)) == {"sin", "log1p"}
    assert forms(lambda x: jnp.arctan(x).max(0)) == {"atan"}
