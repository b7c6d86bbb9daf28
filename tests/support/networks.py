"""Networks with random parameters, so that nothing is zero by initialisation."""

from __future__ import annotations

import functools

import numpy as np

from graphopt.policy.network.config import ModelConfig
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import create, flatten

SMALL = ModelConfig(
    hidden=16, layers=2, heads=2, segment=32, key=8, decision=8, op_width=8, dtype_width=2
)


@functools.cache
def parameters(config: ModelConfig, seed: int = 0, noise: float = 0.1):
    """Flat parameters: initial ones plus noise."""
    flat = flatten(create(config, seed)[1])
    rng = np.random.default_rng(seed)
    return {
        name: (value + rng.normal(0, noise, value.shape)).astype(np.float32)
        for name, value in flat.items()
    }


def random_policy(config: ModelConfig = SMALL, seed: int = 0, noise: float = 0.1) -> NumpyPolicy:
    """A network that decides something."""
    return NumpyPolicy(config, parameters(config, seed, noise))
