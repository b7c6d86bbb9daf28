"""Training steps of models that users write in the common neural network libraries.

Libraries: flax (linen and nnx), dm-haiku, equinox, jraph, jaxkan and optax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sealed.common import Program, integers, normal, uniform

__all__ = ["WORKLOADS"]


def trained(weights: Any) -> Any:
    """The weights moved at random: fresh zero biases would return as their first Adam step."""
    leaves, structure = jax.tree.flatten(weights)
    moved = [leaf + 0.02 * normal(seed, *leaf.shape) for seed, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, moved)


def decoder() -> Any:
    """A small decoder of characters in flax linen."""
    import flax.linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
            attention = nn.MultiHeadDotProductAttention(4, use_bias=False)
            x = x + attention(nn.LayerNorm()(x), mask=mask)
            h = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
            return x + nn.Dense(x.shape[-1])(h)

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            embed = nn.Embed(65, 128)
            place = self.param("place", nn.initializers.normal(0.02), (tokens.shape[1], 128))
            x = embed(tokens) + place
            for _ in range(2):
                x = Block()(x, nn.make_causal_mask(tokens))
            return embed.attend(nn.LayerNorm()(x))

    return Decoder()


def linen_language_model() -> Program:
    """An AdamW step with warm-up and clipping of a small decoder of characters in flax linen."""
    import optax

    schedule = optax.warmup_cosine_decay_schedule(1e-5, 1e-3, 100, 1000)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1, eps=1e-5)
    )
    model, tokens = decoder(), integers(1, 65, 8, 65)
    weights = trained(model.init(jax.random.PRNGKey(0), tokens[:, :-1]))

    def loss(weights: Any, tokens: jax.Array) -> jax.Array:
        logits = model.apply(weights, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(weights: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, tokens)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    return step, (weights, optimizer.init(weights), tokens)


def classifier() -> Any:
    """A convolutional network with batch statistics in flax nnx."""
    from flax import nnx

    class Classifier(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Conv(1, 16, (3, 3), use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
            self.dense = nnx.Linear(32 * 7 * 7, 64, rngs=rngs)
            self.head = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            x = nnx.avg_pool(nnx.relu(self.norm(self.first(x))), (2, 2), (2, 2))
            x = nnx.relu(self.second(x))
            return self.head(nnx.relu(self.dense(x.reshape(x.shape[0], -1))))

    return Classifier(nnx.Rngs(0))


def nnx_image_classifier() -> Program:
    """A step with momentum of a convolutional network with batch statistics in flax nnx."""
    import optax
    from flax import nnx

    optimizer = optax.sgd(0.05, momentum=0.9, nesterov=True)
    graph, weights, statistics = nnx.split(classifier(), nnx.Param, ...)

    def loss(
        weights: Any, statistics: Any, images: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, tuple[Any, jax.Array]]:
        model = nnx.merge(graph, weights, statistics, copy=True)
        logits = model(images)
        value = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return value, (nnx.state(model, nnx.BatchStat), logits)

    def step(
        weights: Any, statistics: Any, state: Any, images: jax.Array, labels: jax.Array
    ) -> tuple[Any, ...]:
        (value, (statistics, _)), gradient = jax.value_and_grad(loss, has_aux=True)(
            weights, statistics, images, labels
        )
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), statistics, state, value

    arguments = (weights, statistics, optimizer.init(weights))
    return step, (*arguments, uniform(1, 64, 28, 28, 1), integers(2, 10, 64))


def haiku_variational_autoencoder() -> Program:
    """A Yogi step of a variational autoencoder of small images in haiku."""
    import haiku as hk
    import optax

    def network(images: jax.Array) -> jax.Array:
        flat = images.reshape(images.shape[0], -1)
        hidden = jax.nn.relu(hk.LayerNorm(-1, True, True)(hk.Linear(128)(flat)))
        mean, log_scale = hk.Linear(8)(hidden), 0.1 * hk.Linear(8)(hidden)
        code = mean + jnp.exp(log_scale) * jax.random.normal(hk.next_rng_key(), mean.shape)
        logits = hk.nets.MLP([128, flat.shape[1]], activation=jax.nn.relu)(code)
        divergence = 0.5 * (mean**2 + jnp.exp(2 * log_scale) - 1) - log_scale
        fit = optax.sigmoid_binary_cross_entropy(logits, flat)
        return jnp.mean(fit.sum(-1) + divergence.sum(-1))

    model = hk.transform(network)
    optimizer = optax.chain(optax.adaptive_grad_clip(0.1), optax.yogi(1e-3, eps=1e-2))
    images = (uniform(1, 32, 20, 20) < 0.3).astype(jnp.float32)
    weights = model.init(jax.random.PRNGKey(0), images)

    def step(weights: Any, state: Any, key: jax.Array, images: jax.Array) -> tuple[Any, ...]:
        value, gradient = jax.value_and_grad(model.apply)(weights, key, images)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    return step, (weights, optimizer.init(weights), jax.random.PRNGKey(1), images)


def jraph_molecule_property() -> Program:
    """The gradient of a regression by two rounds of messages on a batch of four graphs."""
    import jraph

    graphs, nodes, edges = 4, 48, 128

    def dense(weights: dict[str, jax.Array], name: str, *inputs: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.concatenate(inputs, -1) @ weights[name])

    def predict(weights: dict[str, jax.Array], batch: Any) -> jax.Array:
        network = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g: dense(weights, "edge", e, s, r, g),
            update_node_fn=lambda n, s, r, g: dense(weights, "node", n, s, r, g),
            update_global_fn=lambda n, e, g: dense(weights, "global", n, e, g),
            aggregate_edges_for_nodes_fn=jraph.segment_mean,
        )
        return network(network(batch)).globals @ weights["head"]

    def loss(weights: dict[str, jax.Array], batch: Any, targets: jax.Array) -> jax.Array:
        return jnp.mean((predict(weights, batch)[:, 0] - targets) ** 2)

    rng = np.random.default_rng(0)
    size = nodes // graphs
    offsets = np.repeat(np.arange(graphs) * size, edges // graphs)
    batch = jraph.GraphsTuple(
        nodes=normal(1, nodes, 16),
        edges=normal(2, edges, 16),
        senders=jnp.asarray(offsets + rng.integers(0, size, edges), jnp.int32),
        receivers=jnp.asarray(offsets + rng.integers(0, size, edges), jnp.int32),
        globals=jnp.zeros((graphs, 16)),
        n_node=jnp.full(graphs, size, jnp.int32),
        n_edge=jnp.full(graphs, edges // graphs, jnp.int32),
    )
    shapes = {"edge": (64, 16), "node": (64, 16), "global": (48, 16), "head": (16, 1)}
    weights = {name: 0.15 * normal(3, *shape) for name, shape in shapes.items()}
    return jax.value_and_grad(loss), (weights, batch, normal(4, graphs))


def jaxkan_poisson() -> Program:
    """An Adam step of a Chebyshev Kolmogorov-Arnold network that solves Poisson's equation."""
    import optax
    from flax import nnx
    from jaxkan.layers import ChebyshevLayer

    sizes = [(2, 8), (8, 8), (8, 1)]
    layers = nnx.List([ChebyshevLayer(*size, D=5, flavor="exact") for size in sizes])
    graph, weights, rest = nnx.split(layers, nnx.Param, ...)
    optimizer = optax.adam(1e-3, eps=1e-4)

    def solution(weights: Any, point: jax.Array) -> jax.Array:
        hidden = point[None]
        for layer in nnx.merge(graph, weights, rest):
            hidden = layer(hidden)
        return hidden[0, 0]

    def residual(weights: Any, point: jax.Array) -> jax.Array:
        hessian = jax.hessian(solution, argnums=1)(weights, point)
        source = -2 * jnp.pi**2 * jnp.prod(jnp.sin(jnp.pi * point))
        return jnp.trace(hessian) - source

    def loss(weights: Any, interior: jax.Array, boundary: jax.Array) -> jax.Array:
        inside = jax.vmap(residual, (None, 0))(weights, interior)
        edge = jax.vmap(solution, (None, 0))(weights, boundary)
        return 0.01 * jnp.mean(inside**2) + jnp.mean(edge**2)

    def step(weights: Any, state: Any, interior: jax.Array, boundary: jax.Array) -> tuple[Any, ...]:
        value, gradient = jax.value_and_grad(loss)(weights, interior, boundary)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    interior, boundary = 2 * uniform(1, 128, 2) - 1, 2 * uniform(2, 32, 2) - 1
    boundary = boundary.at[:16, 0].set(1.0).at[16:, 1].set(-1.0)
    return step, (weights, optimizer.init(weights), interior, boundary)


def equinox_sine_adaptation() -> Program:
    """The meta-gradient of a network adapted by one step to each of four sine curves."""
    import equinox as eqx

    network = eqx.nn.MLP(1, 1, 20, 2, jnp.tanh, key=jax.random.PRNGKey(0))
    weights, static = eqx.partition(network, eqx.is_array)
    weights = trained(weights)

    def loss(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jax.vmap(eqx.combine(weights, static))(x) - y) ** 2)

    def adapted(weights: Any, support: jax.Array, query: jax.Array) -> jax.Array:
        gradient = jax.grad(loss)(weights, support[:, :1], support[:, 1:])
        weights = jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradient)
        return loss(weights, query[:, :1], query[:, 1:])

    def objective(weights: Any, support: jax.Array, query: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(adapted, (None, 0, 0))(weights, support, query))

    amplitude, phase = 0.5 + uniform(1, 4, 1), jnp.pi * uniform(2, 4, 1)
    points = 6 * uniform(3, 4, 20) - 3
    curves = jnp.stack([points, amplitude * jnp.sin(points + phase)], -1)
    return jax.value_and_grad(objective), (weights, curves[:, :10], curves[:, 10:])


WORKLOADS: dict[str, Callable[[], Program]] = {
    "linen-language-model": linen_language_model,
    "nnx-image-classifier": nnx_image_classifier,
    "haiku-variational-autoencoder": haiku_variational_autoencoder,
    "jraph-molecule-property": jraph_molecule_property,
    "jaxkan-poisson": jaxkan_poisson,
    "equinox-sine-adaptation": equinox_sine_adaptation,
}
