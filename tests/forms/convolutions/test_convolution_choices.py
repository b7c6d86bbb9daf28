"""Which convolutions take a form in a program: layers, their gradients and batched ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphopt import forms
from graphopt.forms.convolutions.methods import sums, window_products


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


def volume(stride=1, layout="NDHWC"):
    kernel = "DHWIO" if layout == "NDHWC" else "OIDHW"

    def fn(x, weights):
        return lax.conv_general_dilated(
            x, weights, (stride,) * 3, "SAME", dimension_numbers=(layout, kernel, layout)
        )

    return fn


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (5, 2)])
def test_volumes_and_their_gradients(seen, window, stride, layout):
    x, weights = normal(1, 12, 12, 11, 3), normal(window, window, window, 3, 24, seed=1)
    if layout == "NCDHW":
        x, weights = x.transpose(0, 4, 1, 2, 3), weights.transpose(4, 3, 0, 1, 2)
    check(both_gradients(volume(stride, layout)), x, weights)
    assert [choice.form.name for choice in seen] == ["convolution-planes"] * 3


def test_convolutions_along_four_dimensions(seen):
    def fn(x, weights):
        return lax.conv(x, weights, (1, 1, 2, 1), "SAME")

    check(fn, normal(1, 20, 6, 5, 7, 6), normal(24, 20, 3, 2, 3, 3, seed=1))
    assert [choice.form.name for choice in seen] == ["convolution-planes"]


def descent(fn, steps=3):
    """A loop that changes weights by their gradient."""

    def loop(x, weights):
        def step(weights, _):
            gradient = jax.grad(lambda w: jnp.mean(jnp.sin(fn(x, w))))(weights)
            return weights - gradient, None

        return lax.scan(step, weights, None, steps)[0]

    return loop


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("stride", [1, 2])
def test_layers_in_loops_have_their_channels_last(seen, layout, stride):
    x, weights = normal(4, 12, 12, 8), normal(3, 3, 8, 16, seed=1)
    if layout == "NCHW":
        x, weights = x.transpose(0, 3, 1, 2), weights.transpose(3, 2, 0, 1)
    check(descent(layer(stride, layout=layout)), x, weights)
    names = [choice.form.name for choice in seen]
    assert names == ["convolution-channels-last"] * (2 if layout == "NCHW" else 1)


def test_layers_in_branches_have_their_channels_last(seen):
    def fn(x, weights):
        return lax.cond(
            x[0, 0, 0, 0] > 0, layer(layout="NCHW"), lambda x, w: jnp.sin(x), x, weights
        )

    check(fn, jnp.abs(normal(4, 20, 16, 16)), normal(20, 20, 3, 3, seed=1))
    assert [choice.form.name for choice in seen] == ["convolution-channels-last"]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_layers_in_loops_have_their_channels_last(seen, dtype):
    def fn(x, weights):
        return lax.fori_loop(0, 3, lambda _, v: jnp.tanh(layer(layout="NCHW")(v, weights)), x)

    x, weights = normal(2, 8, 12, 12).astype(dtype), normal(8, 8, 3, 3).astype(dtype)
    with forms.disabled():
        expected = jax.jit(lambda *a: fn(*a))(x, weights)
    found = jax.jit(lambda *a: fn(*a))(x, weights)
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), atol=0.05)
    assert [choice.form.name for choice in seen] == ["convolution-channels-last"]


@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit])
def test_a_layer_outside_a_loop_is_lowered_with_the_one_inside(seen, wrap):
    same = wrap(layer(layout="NCHW"))

    def fn(x, weights):
        return same(x, weights) + lax.fori_loop(0, 3, lambda _, v: same(v, weights) / 9, x)

    x, weights = normal(4, 20, 16, 16), normal(20, 20, 3, 3, seed=1)
    check(fn, x, weights)
    assert {choice.form.name for choice in seen} == {"convolution-channels-last"}
    lowered = jax.jit(lambda *a: fn(*a)).lower(x, weights)
    assert "dim_numbers = [b, f, 0, 1]" not in lowered.as_text()


def test_layers_outside_of_loops_and_small_ones_stay_with_xla(seen):
    check(both_gradients(layer(layout="NCHW")), normal(4, 8, 16, 16), normal(8, 8, 3, 3, seed=1))
    check(descent(layer(layout="NCHW")), normal(1, 2, 4, 4), normal(2, 2, 3, 3, seed=1))
    check(descent(layer()), normal(1, 4, 4, 2), normal(3, 3, 2, 2, seed=1))
    assert not seen


def test_weights_of_depthwise_layers_in_loops(seen):
    check(descent(layer(groups=32)), normal(2, 14, 14, 32), normal(3, 3, 1, 32, seed=1))
    assert {choice.form.name for choice in seen} == {"convolution-shifts", "convolution-sums"}


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_gradients_by_weights(seen, groups, padding):
    x, weights = normal(4, 20, 20, 8), normal(5, 5, 8 // groups, 16, seed=1)

    def loss(x, weights):
        found = lax.conv_general_dilated(
            x, weights, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip
        return jnp.sum(jnp.sin(found))

    def penalty(weights, x):
        return jnp.sum(jax.grad(loss, 1)(x, weights) ** 2)

    check(jax.grad(penalty, (0, 1)), weights, x)
    assert "convolution-swapped" in [choice.form.name for choice in seen]


@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (3, 4), (2, 12)])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_few_channels_are_shifted(seen, layout, channels, outputs):
    x, weights = normal(2, 48, 40, channels), normal(5, 3, channels, outputs, seed=1)
    if layout == "NCHW":
        x, weights = x.transpose(0, 3, 1, 2), weights.transpose(3, 2, 0, 1)
    check(layer(layout=layout), x, weights)
    assert [choice.form.name for choice in seen] == ["convolution-shifts"]


def test_filters_of_signals_are_shifted(seen):
    signal, taps = normal(20_000), normal(25, seed=1)
    check(lambda x, w: jnp.convolve(x, w, mode="same"), signal, taps)
    check(lambda x, w: jax.scipy.signal.correlate(x, w, mode="valid"), signal, taps)
    assert [choice.form.name for choice in seen] == ["convolution-shifts"] * 2


def test_gradients_of_a_filter(seen):
    check(both_gradients(layer()), normal(1, 96, 96, 1), normal(3, 3, 1, 1, seed=1))
    names = [choice.form.name for choice in seen]
    assert names[0] == names[2] == "convolution-shifts"
    assert names[1] in {"convolution-window-product", "convolution-sums"}


def test_a_shifted_sum_is_made_before_it_is_reduced(seen):
    def fn(x, weights):
        return jnp.sum(layer()(x, weights), (1, 2))

    x, weights = normal(2, 64, 64, 2), normal(2, 2, 2, 2, seed=1)
    check(fn, x, weights)
    assert [choice.form.name for choice in seen] == ["convolution-shifts"]
    lowered = jax.jit(lambda *a: fn(*a)).lower(x, weights).as_text()
    assert lowered.count("optimization_barrier") == 2  # the padded input, and the sum


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("groups", [1, 8])
def test_large_windows_are_shifted_in_turn(seen, layout, groups):
    x, weights = normal(1, 48, 40, groups), normal(17, 13, 1, groups, seed=1)
    if layout == "NCHW":
        x, weights = x.transpose(0, 3, 1, 2), weights.transpose(3, 2, 0, 1)
    check(layer(groups=groups, layout=layout), x, weights)
    assert [choice.form.name for choice in seen] == ["convolution-shifts-in-turn"]


@pytest.mark.parametrize("taps", [129, 200, 501])
def test_long_filters_are_shifted_in_turn(seen, taps):
    check(lambda x, w: jnp.convolve(x, w, mode="same"), normal(8_000), normal(taps, seed=1))
    assert [choice.form.name for choice in seen] == ["convolution-shifts-in-turn"]
