"""The objective, as pure functions. Axis letters: B decision vectors, N padded nodes, V values of a field.

PPO (Schulman et al. 2017) with one probability ratio per node and field: with thousands of nodes, the ratio
of whole vectors would leave any clipping range at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from graphopt.learn.training.batch import Batch
from graphopt.policy.network.flax_network import entropies, log_probabilities
from graphopt.policy.network.parameters import Nested, network


class Weights(NamedTuple):
    """Weights of the objective's parts, and PPO's clipping range; traced: changing them compiles nothing."""

    policy: Any
    imitation: Any
    entropy: Any
    value: Any
    gain: Any
    clip: Any
    quantile: Any


Metrics = dict[str, jax.Array]


def clipped_surrogate(
    log_prob: jax.Array, old: jax.Array, advantage: jax.Array, clip: jax.Array
) -> jax.Array:
    """PPO's loss of every choice, elementwise: -min(r A, clip(r) A), r = exp(log_prob - old)."""
    ratio = jnp.exp(jnp.clip(log_prob - old, -20.0, 20.0))
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def divergence(log_prob: jax.Array, old: jax.Array) -> jax.Array:
    """Estimate of KL(old || new) at drawn choices, elementwise, never negative: r - 1 - log r."""
    log_ratio = jnp.clip(log_prob - old, -20.0, 20.0)
    return jnp.expm1(log_ratio) - log_ratio


def pinball(error: jax.Array, quantile: jax.Array) -> jax.Array:
    """Quantile regression's loss of error = target - prediction."""
    return jnp.maximum(quantile * error, (quantile - 1.0) * error)


def objective(
    definition: Any, parameters: Nested, batch: Batch, weights: Weights
) -> tuple[jax.Array, Metrics]:
    """The loss of one graph's batch, and its parts by metric name."""
    net = network(definition, parameters)
    x, summary = net.trunk(batch.graph)
    logits, gains = jax.vmap(lambda actions: net.decode(batch.graph, x, summary, actions))(
        batch.actions
    )
    parts = _choices(batch, logits, weights)
    error = batch.log_speedup - gains[:, 0]
    low_error = batch.log_speedup - gains[:, 1]
    each = optax.losses.huber_loss(error) + pinball(low_error, weights.quantile)
    parts["loss/gain"] = (each * batch.known).sum() / jnp.maximum(batch.known.sum(), 1.0)
    parts["loss/value"] = optax.losses.huber_loss(net.value(summary), batch.value)
    loss = (
        weights.policy * parts["loss/policy"]
        + weights.imitation * parts["loss/imitation"]
        - weights.entropy * parts["ppo/entropy"]
        + weights.value * parts["loss/value"]
        + weights.gain * parts["loss/gain"]
    )
    parts["loss/total"] = loss
    return loss, parts


def _choices(batch: Batch, logits: dict[str, jax.Array], weights: Weights) -> Metrics:
    """All that is summed over nodes and fields: policy loss, imitation, entropy, divergence.

    Each vector counts alike, whatever the number of its choices: a vector that explored few nodes says more
    about each of them.
    """
    zero = jnp.zeros(len(batch.advantages))
    policy, entropy, kl, clipped, count = zero, zero, zero, zero, zero
    imitation = jnp.float32(0.0)
    advantage = batch.advantages[:, None]
    for name, values in logits.items():
        logs = jax.vmap(log_probabilities)(values, batch.actions[name])
        old, drawn = batch.old[name], batch.drawn[name]
        policy += (clipped_surrogate(logs, old, advantage, weights.clip) * drawn).sum(1)
        entropy += (jax.vmap(entropies)(values) * drawn).sum(1)
        kl += (divergence(logs, old) * drawn).sum(1)
        clipped += ((jnp.abs(jnp.expm1(logs - old)) > weights.clip) * drawn).sum(1)
        count += drawn.sum(1)
        imitation -= (logs * batch.imitate[name]).sum()
    vectors = jnp.maximum((count > 0).sum(), 1)

    def mean(total: jax.Array) -> jax.Array:
        return (total / jnp.maximum(count, 1.0)).sum() / vectors

    return {
        "loss/policy": mean(policy),
        "loss/imitation": imitation,
        "ppo/entropy": mean(entropy),
        "ppo/kl": mean(kl),
        "ppo/clipped": mean(clipped),
    }
