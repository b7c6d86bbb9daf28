"""The model of unmeasured kernels is trained once per state of the bank."""

from __future__ import annotations

import numpy as np

from graphopt.measure.features import COUNT
from graphopt.measure.kernel_model import MIN_KERNELS, model_of
from graphopt.store import Store
from graphopt.store.kernels import Kernel, put_kernels


def kernels(count: int, seed: int) -> list[Kernel]:
    rng = np.random.default_rng(seed)
    return [
        Kernel(
            f"{seed}-{i}", float(rng.uniform(50, 5000)), 1, tuple(rng.uniform(0, 9, COUNT).tolist())
        )
        for i in range(count)
    ]


def test_the_model_of_a_store_is_kept_until_its_kernels_change(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    put_kernels(store, kernels(MIN_KERNELS, 0))
    model = model_of(store)
    assert model_of(Store(tmp_path / "store.sqlite")) is model
    put_kernels(store, kernels(5, 1))
    assert model_of(store) is not model


def test_without_a_store_fixed_coefficients_stand_in(tmp_path):
    features = np.ones((1, COUNT))
    for store in (None, Store(tmp_path / "nowhere.sqlite")):
        assert np.isfinite(model_of(store).predict(features)[0]).all()
    assert not (tmp_path / "nowhere.sqlite").exists()
