"""Every form of a convolution against XLA's own way, on small ones of all kinds."""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt.forms.convolutions import FORMS
from graphopt.forms.form import Array, Operation

MAX_UNROLLED = 40


def array(like):
    return Array(tuple(like.shape), np.dtype(like.dtype))


def values(like, seed):
    found = np.random.default_rng(seed).normal(size=like.shape)
    return jnp.asarray(found, like.dtype)


def gradients(fn, x, weights):
    """Parameters and operands of a convolution and of both its gradients."""
    traced = jax.make_jaxpr(jax.grad(lambda x, w: jnp.sum(fn(x, w)), (0, 1)))(x, weights)
    equations = [e for e in traced.eqns if e.primitive.name == "conv_general_dilated"]
    return [(e.invars[0].aval, e.invars[1].aval, e.primitive, e.params) for e in equations]


@st.composite
def convolutions(draw):
    """Shapes and parameters of a convolution."""
    spatial = "DHW"[-draw(st.sampled_from([1, 2, 2, 3])) :]
    groups, inputs, outputs = (draw(st.integers(1, 3)) for _ in range(3))
    by_batch = draw(st.booleans()) and draw(st.booleans())
    sizes = {name: draw(st.integers(1, 6)) for name in spatial}
    window = {name: draw(st.integers(1, 3)) for name in spatial}
    batch = draw(st.integers(1, 2)) * (groups if by_batch else 1)
    channels = inputs if by_batch else inputs * groups
    specs = tuple(
        "".join(draw(st.permutations(names)))
        for names in ("N" + spatial + "C", spatial + "IO", "N" + spatial + "C")
    )

    def each(*choices):
        return [draw(st.sampled_from(choices)) for _ in spatial]

    options = {
        "window_strides": each(1, 2, 3),
        "padding": list(zip(each(-2, 0, 1, 3), each(-1, 0, 2, 4), strict=True)),
        "lhs_dilation": each(1, 1, 2, 3),
        "rhs_dilation": each(1, 1, 2),
        "dimension_numbers": specs,
        "batch_group_count" if by_batch else "feature_group_count": groups,
    }
    x = {**sizes, "N": batch, "C": channels}
    weights = {**window, "I": inputs, "O": outputs * groups}
    return [x[n] for n in specs[0]], [weights[n] for n in specs[1]], options


def allowed(form, operation):
    """Whether a form may compute it, in code that is not too long for a test."""
    weights, dims = operation.operands[1], operation.params["dimension_numbers"]
    window = prod(weights.dims[d] for d in dims.rhs_spec[1:])
    places = prod(operation.results[0].dims[d] for d in dims.out_spec[2:])
    return min(window, places) <= MAX_UNROLLED and form.forbids(operation) is None


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
@settings(max_examples=8, deadline=None)
@given(convolutions(), st.integers(0, 2))
def test_results_are_those_of_xla(form, made, which):
    x_dims, weights_dims, options = made
    x = jax.ShapeDtypeStruct(x_dims, np.float32)
    weights = jax.ShapeDtypeStruct(weights_dims, np.float32)
    try:
        found = gradients(lambda x, w: lax.conv_general_dilated(x, w, **options), x, weights)
    except (TypeError, ValueError):
        return
    if which >= len(found):
        return
    x, weights, primitive, params = found[which]
    result = jax.eval_shape(lambda x, w: primitive.bind(x, w, **params), x, weights)
    arrays = (array(x), array(weights)), (array(result),)
    operation = Operation(primitive.name, *arrays, params, in_body=form.by_body)
    if not allowed(form, operation):
        return
    args = values(x, 0), values(weights, 1)
    ours, theirs = jax.jit(
        lambda *a: (form.compute(operation, a)[0], primitive.bind(*a, **params))
    )(*args)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
