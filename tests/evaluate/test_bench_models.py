"""Models of the benchmark: one definition gives the same results in both layouts."""

import jax
import numpy as np
import pytest

from benchmarks.models import images, sequences
from benchmarks.models.backends import Jax, weights_of
from benchmarks.models.bench import table


@pytest.mark.parametrize(
    ("model", "dims"), [(images.unet, (1, 8, 8, 3)), (sequences.wavenet, (1, 16, 1))]
)
def test_layouts_agree(model, dims):
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    weights = weights_of(model, x, False)
    last, first = (
        jax.jit(lambda w, x, f=first: model(Jax(iter(w), False, f), x))(weights, x)
        for first in (False, True)
    )
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), last, rtol=1e-4, atol=1e-5)


def test_tables_say_what_was_measured_and_what_differs():
    row = {
        "ms": {"default": 4.0, "graphopt": 2.0},
        "default": [2.0, 1.9, 2.1],
        "compile_s": [1.0, 1.1],
        "equal": False,
    }
    text = table({"model": row})
    assert "NOT EQUAL" in text and "geometric mean 2.00x" in text
