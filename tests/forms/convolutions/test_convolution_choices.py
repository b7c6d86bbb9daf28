"""Which convolutions take a form in a program: layers, their gradients and batched ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphopt import forms
from graphopt.forms.convolutions import sums, window_products


@pytest.fixture
def seen():
    """Choices for convolutions lowered while forms are installed."""
    choices = []

    def note(choice):
        if choice.operation.primitive == "conv_general_dilated":
            choices.append(choice)

    forms.install(note)
    yield choices
    forms.remove()


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def layer(stride=1, groups=1, layout="NHWC", dilation=1):
    kernel = "HWIO" if layout == "NHWC" else "OIHW"

    def fn(x, weights):
        return lax.conv_general_dilated(
            x, weights, (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
            dimension_numbers=(layout, kernel, layout), feature_group_count=groups,
        )  # fmt: skip

    return fn


def check(fn, *args):
    """Results in forms are XLA's."""
    found = jax.jit(lambda *a: fn(*a))(*args)
    with forms.disabled():
        expected = jax.jit(lambda *a: fn(*a))(*args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max()),
        found,
        expected,
    )


def both_gradients(fn):
    return jax.grad(lambda x, weights: jnp.sum(jnp.sin(fn(x, weights))), (0, 1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_depthwise_layers_and_their_gradients(seen, stride, layout):
    x, weights = normal(1, 36, 36, 16), normal(3, 3, 1, 16)
    if layout == "NCHW":
        x, weights = x.transpose(0, 3, 1, 2), weights.transpose(3, 2, 0, 1)
    check(both_gradients(layer(stride, 16, layout)), x, weights)
    names = [choice.form.name for choice in seen]
    assert len(names) == 3
    assert set(names) <= {"convolution-shifts", "convolution-sums"}


def test_grouped_layers_and_their_gradients(seen):
    check(both_gradients(layer(groups=4)), normal(2, 12, 12, 64), normal(3, 3, 16, 64, seed=1))
    names = [choice.form.name for choice in seen]
    assert "convolution-groups-apart" in names
    assert "convolution-group-products" in names


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_groups_of_some_channels_and_their_gradients(seen, layout):
    x, weights = normal(2, 24, 24, 40), normal(3, 3, 8, 40, seed=1)
    if layout == "NCHW":
        x, weights = x.transpose(0, 3, 1, 2), weights.transpose(3, 2, 0, 1)
    check(both_gradients(layer(groups=5, layout=layout)), x, weights)
    names = sorted(choice.form.name for choice in seen)
    assert names == ["convolution-group-products", "convolution-shifts", "convolution-shifts"]


@pytest.mark.parametrize(("size", "window"), [(3, 3), (3, 5), (6, 7)])
def test_weights_of_depthwise_layers_on_few_pixels(seen, size, window):
    gradient = jax.grad(lambda w, x: jnp.sum(jnp.sin(layer(groups=96)(x, w))))
    check(gradient, normal(window, window, 1, 96), normal(8, size, size, 96, seed=1))
    assert "convolution-sums" in [choice.form.name for choice in seen]


def test_weights_of_grouped_layers_on_few_pixels(seen):
    gradient = jax.grad(lambda w, x: jnp.sum(jnp.sin(layer(groups=19)(x, w))))
    check(gradient, normal(3, 3, 8, 152), normal(8, 3, 3, 152, seed=1))
    assert "convolution-group-products" in [choice.form.name for choice in seen]


@pytest.mark.parametrize(("each", "outputs"), [(1, 2), (2, 2), (2, 1)])
def test_weights_of_many_narrow_groups(seen, each, outputs):
    gradient = jax.grad(lambda w, x: jnp.sum(jnp.sin(layer(groups=80)(x, w))))
    check(gradient, normal(3, 3, each, 80 * outputs), normal(2, 6, 6, 80 * each, seed=1))
    assert "convolution-group-products" in [choice.form.name for choice in seen]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("each", [1, 4])
def test_weights_of_large_layers_are_computed_in_parts(seen, monkeypatch, stride, each):
    for module in (sums, window_products):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    x, weights = normal(2, 24, 24, 24, seed=1), normal(3, 5, each, 24)

    def gradient(weights, x):
        return jax.grad(lambda w: jnp.sum(jnp.sin(layer(stride, 24 // each)(x, w))))(weights)

    check(gradient, weights, x)
    assert {"convolution-sums", "convolution-group-products"} & {c.form.name for c in seen}
    assert "while" in str(jax.jit(lambda *a: gradient(*a)).lower(weights, x).as_text())


def test_long_sums_are_computed_once_for_all_their_readers(seen):
    def fn(x, weights):
        y = layer(groups=64)(x, weights)
        return jnp.abs(y), y.reshape(2, -1) + 3, y.transpose(0, 3, 1, 2) + 1

    x, weights = normal(2, 24, 24, 64), normal(5, 5, 1, 64, seed=1)
    check(fn, x, weights)
    assert [choice.form.name for choice in seen] == ["convolution-shifts"]
    lowered = jax.jit(lambda *a: fn(*a)).lower(x, weights)
    assert lowered.as_text().count("optimization_barrier") == 2  # the padded input, and the sum
    if jax.__version_info__ >= (0, 11):  # before, XLA takes barriers away before it fuses
        assert lowered.compile().as_text().count(" multiply(") == 25


def test_sequences_leave_gradients_by_weights_to_xla(seen):
    def fn(x, weights):
        return lax.conv_general_dilated(
            x, weights, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )

    check(both_gradients(fn), normal(4, 512, 32), normal(3, 32, 32, seed=1))
    assert not seen


def test_weights_of_a_product_over_channels(seen):
    check(both_gradients(layer()), normal(1, 28, 28, 32), normal(1, 1, 32, 64, seed=1))
    assert [choice.form.name for choice in seen] == ["convolution-window-product"]


def test_filters_of_a_batch_are_groups(seen):
    fn = jax.vmap(layer(groups=8), in_axes=(0, 0))
    check(fn, normal(3, 2, 16, 16, 8), normal(3, 3, 3, 1, 8, seed=1))
    assert [choice.form.name for choice in seen] == ["convolution-shifts"]


def test_ordinary_and_integer_convolutions_stay_with_xla(seen):
    check(layer(), normal(1, 16, 16, 16), normal(3, 3, 16, 16, seed=1))
    whole = jnp.ones((1, 40, 40, 32), jnp.int32), jnp.ones((3, 3, 1, 32), jnp.int32)
    check(layer(groups=32), *whole)
    assert not seen


def test_a_group_that_is_not_finite_leaves_others_alone(seen):
    x = normal(2, 12, 12, 64).at[..., 0].set(jnp.nan)
    fn = jax.jit(lambda *a: layer(groups=4)(*a))
    assert np.isfinite(fn(x, normal(3, 3, 16, 64, seed=1))[..., 16:]).all()
    assert len(seen) == 1
