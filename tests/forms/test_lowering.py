"""Rules in front of jax's own: a form where one pays, jax's rule everywhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from graphopt import forms


@pytest.fixture
def seen():
    """Choices for operations lowered while forms are installed."""
    choices = []
    assert forms.install(choices.append) == ()
    yield choices
    forms.remove()


def depthwise(x, weights):
    return lax.conv_general_dilated(
        x, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )  # fmt: skip


def arguments(size=64):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, size, size, 32)), jnp.float32)
    return x, jnp.asarray(np.random.default_rng(1).normal(size=(3, 3, 1, 32)), jnp.float32)


def lowered(fn, *args):
    """HLO text of a function that jax has not seen before."""
    return jax.jit(lambda *a: fn(*a)).lower(*args).as_text()


def test_a_form_takes_the_place_of_the_primitive(seen):
    text = lowered(depthwise, *arguments())
    assert "stablehlo.convolution" not in text
    assert [choice.form.name for choice in seen] == ["convolution-shifts"]
    assert "conv_general_dilated(float32[2,64,64,32], float32[3,3,1,32])" in str(seen[0].operation)


def test_small_operations_stay_with_xla(seen):
    assert "stablehlo.convolution" in lowered(depthwise, *arguments(1))
    assert not seen


def test_results_are_those_of_xla(seen):
    args = arguments()
    found = jax.jit(lambda *a: depthwise(*a))(*args)
    with forms.disabled():
        expected = jax.jit(lambda *a: depthwise(*a))(*args)
    assert len(seen) == 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_left_after_removal(seen):
    forms.remove()
    assert not forms.installed()
    assert "stablehlo.convolution" in lowered(depthwise, *arguments())
    assert not seen


def test_exported_modules_are_left_alone(seen):
    exported = export.export(jax.jit(lambda *a: depthwise(*a)))(*arguments())
    assert "stablehlo.convolution" in exported.mlir_module()
    assert not seen
