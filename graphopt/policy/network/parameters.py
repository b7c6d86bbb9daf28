"""Parameters of the flax network as nested dicts (for training) and flat dicts (for use and storage)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from graphopt.policy.network.config import ModelConfig
from graphopt.policy.network.flax_network import PolicyNetwork

Nested = dict[Any, Any]
"""Parameters as `flax.nnx.to_pure_dict` gives them: dicts of dicts of jax arrays."""


def create(config: ModelConfig, seed: int) -> tuple[Any, Nested]:
    """A fresh network: its graph definition, and its parameters; `network` puts them together."""
    definition, state = nnx.split(PolicyNetwork(config, nnx.Rngs(seed)), nnx.Param)
    parameters: Nested = nnx.to_pure_dict(state)
    # Through numpy: initialisers leave weak types, which would compile everything a second time.
    return definition, unflatten(parameters, flatten(parameters))


def network(definition: Any, parameters: Nested) -> PolicyNetwork:
    """The network with these parameters; usable inside traced functions."""
    merged: PolicyNetwork = nnx.merge(definition, parameters)
    return merged


def flatten(parameters: Nested) -> dict[str, NDArray[np.float32]]:
    """Dotted name -> float32 array, by name."""
    out: dict[str, NDArray[np.float32]] = {}
    _collect(parameters, "", out)
    return dict(sorted(out.items()))


def unflatten(like: Nested, flat: Mapping[str, NDArray[np.float32]], prefix: str = "") -> Nested:
    """Nested parameters of the structure of `like` with the values of `flat`."""
    out: Nested = {}
    for key, value in like.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        inner = isinstance(value, dict)
        out[key] = unflatten(value, flat, name) if inner else jnp.asarray(flat[name])
    return out


def _collect(tree: Nested, prefix: str, out: dict[str, NDArray[np.float32]]) -> None:
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            _collect(value, name, out)
        else:
            out[name] = np.asarray(value, np.float32)
