"""Parameters of the network of advantages: nested dicts for training, flat dicts for use and storage."""

from __future__ import annotations

from typing import Any

from flax import nnx

from graphopt.policy.advantages.config import AdvantageConfig
from graphopt.policy.advantages.flax_network import AdvantageNetwork
from graphopt.policy.network.parameters import Nested, flatten, unflatten


def create(config: AdvantageConfig, seed: int) -> tuple[Any, Nested]:
    """A fresh network: its graph definition, and its parameters; `network` puts them together."""
    definition, state = nnx.split(AdvantageNetwork(config, nnx.Rngs(seed)), nnx.Param)
    parameters: Nested = nnx.to_pure_dict(state)
    # Through numpy: initialisers leave weak types, which would compile everything a second time.
    return definition, unflatten(parameters, flatten(parameters))


def network(definition: Any, parameters: Nested) -> AdvantageNetwork:
    """The network with these parameters; usable inside traced functions."""
    merged: AdvantageNetwork = nnx.merge(definition, parameters)
    return merged
