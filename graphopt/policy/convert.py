"""Parameters of the flax network as a flat dict of arrays, and back."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from graphopt.policy.model import ModelConfig
from graphopt.policy.network import PolicyNetwork

FlatParameters = dict[str, NDArray[np.float32]]


def create(config: ModelConfig, seed: int) -> tuple[Any, Any]:
    """A fresh network as (graph definition, parameters), both as of `flax.nnx.split`."""
    return nnx.split(PolicyNetwork(config, nnx.Rngs(seed)), nnx.Param)


def flatten(parameters: Any) -> FlatParameters:
    """Dotted name -> float32 array."""
    out: FlatParameters = {}
    _collect(nnx.to_pure_dict(parameters), "", out)
    return dict(sorted(out.items()))


def _collect(tree: Any, prefix: str, out: FlatParameters) -> None:
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            _collect(value, name, out)
        else:
            out[name] = np.asarray(value, np.float32)


def unflatten(like: Any, flat: FlatParameters) -> Any:
    """Parameters of the same structure as `like` with the values of `flat`."""
    out = nnx.clone(like)
    nnx.replace_by_pure_dict(out, _nest(nnx.to_pure_dict(like), "", flat))
    return out


def _nest(tree: Any, prefix: str, flat: FlatParameters) -> Any:
    out = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        out[key] = _nest(value, name, flat) if isinstance(value, dict) else jnp.asarray(flat[name])
    return out
