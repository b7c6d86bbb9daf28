"""Times of kernels and regions that were never measured."""

from __future__ import annotations

import numpy as np

from graphopt.measure.bank.kernels import COUNT, FEATURES, combine
from graphopt.measure.bank.predictor import (
    ADDITIVE,
    MIN_KERNELS,
    MIN_REGIONS,
    PRIOR_NS,
    KernelModel,
    LinearModel,
    counts,
    model_of,
)
from graphopt.measure.bank.regions import RegionPricer
from graphopt.measure.bank.signatures import Signatures
from graphopt.store import Store
from graphopt.store.kernels import Kernel, put_kernels

NAMES = [name for name, _ in FEATURES]


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
    small, large = np.ones((2, 1, COUNT))
    large[0, [NAMES.index(name) for name in ADDITIVE]] = 20.0
    for store in (None, Store(tmp_path / "nowhere.sqlite")):
        (one,), (two,) = (model_of(store).predict(features)[0] for features in (small, large))
        assert 0 < one < two < np.inf
    assert not (tmp_path / "nowhere.sqlite").exists()


def native_features(rng: np.random.Generator, count: int) -> np.ndarray:
    """Features of regions that differ in their additive counts only."""
    features = np.zeros((count, COUNT))
    for name in ADDITIVE:
        features[:, NAMES.index(name)] = rng.uniform(0, 9, count)
    features[:, NAMES.index("native")] = features[:, NAMES.index("threads")] = 1.0
    return features


def test_items_of_native_code_are_priced_without_bias():
    """Times with an error of a factor of two must not be predicted too short on the whole."""
    rng = np.random.default_rng(0)
    features = native_features(rng, 400)
    truth = counts(features) @ (np.asarray(PRIOR_NS) * rng.uniform(0.3, 3.0, len(PRIOR_NS)))
    measured = truth * np.exp(rng.normal(0.0, 0.7, len(truth)))
    model = LinearModel.fit(features, measured)
    error = np.log(model.predict(features) / truth)
    assert abs(np.median(error)) < 0.1
    assert np.median(np.abs(error)) < 0.2
    assert (model.weights > 0).all() and model.trained


def test_a_region_is_priced_by_the_sum_of_its_items_as_often_as_they_run():
    rng = np.random.default_rng(1)
    measured = [
        Kernel(f"r{i}", float(np.exp(rng.uniform(4, 9))), 1, tuple(row.tolist()))
        for i, row in enumerate(native_features(rng, MIN_REGIONS + MIN_KERNELS))
    ]
    model = KernelModel(measured)
    pricer = RegionPricer(model, pessimism=0.0)
    items = native_features(rng, 3)
    keys = np.array([11, 22, 33], np.uint64)
    pricer.learn(keys, items)
    signatures = Signatures(
        key=np.array([[11, 22, 0, 33]], np.uint64),
        native=np.ones((1, 4), np.bool_),
        partner=np.full((1, 4), -1, np.int32),
        region=np.array([[0, 0, 0, 1]]),
        region_key=np.array([[7, 8]], np.uint64),
        region_node=np.array([0, 3], np.int32),
    )
    executions = np.array([2.0, 20.0, 2.0, 5.0])
    found = pricer.price(signatures, np.array([[True, True]]), executions)
    first = combine([(items[0], 1.0), (items[1], 10.0)])
    second = combine([(items[2], 1.0)])
    assert np.allclose(found, model.predict(np.stack([first, second]))[0])
    only = pricer.price(signatures, np.array([[False, True]]), executions)
    assert np.isnan(only[0, 0]) and only[0, 1] == found[0, 1]


def test_with_few_regions_in_the_bank_none_is_predicted_whole():
    assert not KernelModel(kernels(MIN_KERNELS, 0)).knows_regions
    rows = native_features(np.random.default_rng(2), MIN_REGIONS).tolist()
    regions = [Kernel(f"r{i}", 100.0 + i, 1, tuple(row)) for i, row in enumerate(rows)]
    assert not KernelModel(regions[1:]).knows_regions
    assert KernelModel(regions).knows_regions
