"""Training of one network of advantages, and what it says of states.

Axis letters: A alternatives of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from graphopt.learn.advantages.batches import Batch, Sizes, make_batch, packed, sizes_of
from graphopt.learn.advantages.config import FitConfig
from graphopt.learn.advantages.data import Labelled
from graphopt.policy.advantages.config import AdvantageConfig
from graphopt.policy.advantages.encoding import GraphInput
from graphopt.policy.advantages.numpy_network import NumpyAdvantages
from graphopt.policy.advantages.parameters import create, network
from graphopt.policy.network.parameters import Nested, flatten

Said = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Mean and standard deviation of each alternative's log ratio."""

Flat = dict[str, NDArray[np.float32]]

_OUTLIER: Final = 3.0
"""Standard deviations from which a label's pull grows no more."""

_RANK_WIDTH: Final = 0.05
"""Difference of means at which the order of two alternatives counts as half decided."""

_SMALLEST: Final = -5.0
_LARGEST: Final = 1.0
"""Range of the logarithm of standard deviations."""


def loss_of(
    mean: jax.Array, deviation: jax.Array, batch: Batch, config: FitConfig, teach: float
) -> jax.Array:
    """What training minimises: likelihood of the labels, order within states, distance from an ensemble.

    Args:
        mean: float32 [A].
        deviation: float32 [A]; logarithms.
        batch: labels.
        config: weights.
        teach: weight of the ensemble's answers against the labels.
    """
    real = batch.choices.real
    count = jnp.maximum(real.sum(), 1)
    spread = jnp.exp(jnp.clip(deviation, _SMALLEST, _LARGEST))
    total = jnp.sqrt(spread**2 + batch.noise**2 + 1e-6)
    away = optax.huber_loss((batch.target - mean) / total, delta=_OUTLIER)
    likelihood = jnp.where(real, away + jnp.log(total), 0.0).sum() / count
    gap = batch.target[:, None] - batch.target
    same = batch.choices.state[:, None] == batch.choices.state
    both = same & real & real[:, None] & (gap > config.least_effect)
    order = jax.nn.softplus(-(mean[:, None] - mean) / _RANK_WIDTH)
    ranking = jnp.where(both, order, 0.0).sum() / jnp.maximum(both.sum(), 1)
    labels = likelihood + config.ranking * ranking
    if not teach:
        return labels
    given, wide = batch.taught[:, 0], jnp.maximum(batch.taught[:, 1], 1e-3)
    apart = jnp.log(spread / wide) + (wide**2 + (given - mean) ** 2) / (2.0 * spread**2)
    return (1.0 - teach) * labels + teach * jnp.where(real, apart, 0.0).sum() / count


@functools.lru_cache(maxsize=8)
def _step(definition: Any, config: FitConfig, teach: float) -> tuple[Any, Any]:
    """Optimizer and compiled step of a network of some sizes."""
    optimizer = _optimizer(config)

    def loss(parameters: Nested, batch: Batch, key: jax.Array) -> jax.Array:
        """Of one batch."""
        model = network(definition, parameters)
        hidden = model.config.hidden
        kept = 1.0 - config.dropout
        shape = (len(batch.target), hidden)
        drop = jax.random.bernoulli(key, kept, shape) / kept if config.dropout else None
        mean, deviation = model(batch.graph, batch.choices, drop)
        return loss_of(mean, deviation, batch, config, teach)

    def step(parameters: Nested, state: Any, batch: Batch, key: jax.Array, rate: float) -> Any:
        """Parameters, state of the optimizer and loss after one batch."""
        value, gradient = jax.value_and_grad(loss)(parameters, batch, key)
        updates, state = optimizer.update(gradient, state, parameters)
        updates = jax.tree.map(lambda leaf: rate * leaf, updates)
        return optax.apply_updates(parameters, updates), state, value

    return optimizer, jax.jit(step, donate_argnums=(0, 1))


def fit(
    states: Sequence[Labelled],
    model: AdvantageConfig,
    config: FitConfig,
    seed: int,
    taught: Sequence[Said] | None = None,
    sizes: Sizes | None = None,
    tell: Callable[[int, float], None] = lambda epoch, loss: None,
) -> Flat:
    """Trains a network from the start.

    Args:
        states: to learn from.
        model: sizes.
        config: settings.
        seed: of weights and order.
        taught: what an ensemble says of each state; half of the loss then.
        sizes: of the batches; those that these states need if None. Equal sizes share a compilation.
        tell: told of every epoch and its mean loss.
    """
    definition, parameters = create(model, seed)
    sizes = sizes_of(states, config) if sizes is None else sizes
    rng = np.random.default_rng(seed)
    given = None if taught is None else [np.stack(one, axis=1) for one in taught]
    optimizer, step = _step(definition, config, 0.5 if given else 0.0)
    state = optimizer.init(parameters)
    key = jax.random.key(seed)
    for epoch in range(config.epochs):
        losses = []
        rate = config.learning_rate * (0.1 + 0.45 * (1.0 + np.cos(np.pi * epoch / config.epochs)))
        for places in packed(states, sizes, rng.permutation(len(states)).tolist()):
            batch = make_batch(
                [states[i] for i in places], sizes, config.clip,
                None if given is None else [given[i] for i in places],
            )  # fmt: skip
            key, drawn = jax.random.split(key)
            parameters, state, value = step(parameters, state, batch, drawn, rate)
            losses.append(value)
        tell(epoch + 1, float(jnp.mean(jnp.stack(losses))))
    return flatten(parameters)


def _optimizer(config: FitConfig) -> Any:
    """Adam with weight decay of matrices, at a rate of 1."""

    def matrices(parameters: Nested) -> Any:
        """True for parameters that decay."""
        return jax.tree.map(lambda leaf: leaf.ndim > 1, parameters)

    decayed = optax.adamw(1.0, weight_decay=config.weight_decay, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(1.0), decayed)


def say(states: Sequence[Labelled], model: AdvantageConfig, parameters: Flat) -> list[Said]:
    """What a network says of every state, computed as in the hook."""
    told = NumpyAdvantages(model, parameters)
    out: list[Said] = []
    last: tuple[GraphInput | None, Any] = (None, None)
    for one in states:
        if one.graph is not last[0]:
            last = (one.graph, told.of(one.graph))
        out.append(last[1].score(one.state))
    return out


def together(members: Sequence[Sequence[Said]]) -> list[Said]:
    """What an ensemble says: the mean, and the standard deviation of the mixture."""
    out: list[Said] = []
    for said in zip(*members, strict=True):
        means: NDArray[np.float32] = np.stack([mean for mean, _ in said])
        variances = np.stack([deviation**2 for _, deviation in said])
        deviation: NDArray[np.float32] = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
        out.append((means.mean(axis=0), deviation))
    return out
