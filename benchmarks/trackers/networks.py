"""Networks: convolutions, recurrences, attention and messages on graphs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal


def transposed_convolution() -> Built:
    """A transposed convolution of signals with a stride, as at the end of an audio decoder.

    After jax-ml/jax#23783: orders of magnitude slower than the convolution, and than PyTorch's.
    """

    def fn(x: Any, kernel: Any) -> Any:
        return lax.conv_transpose(
            x, kernel, (16,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
        )

    rng = generator()
    return fn, (normal(rng, 1, 128, 32), normal(rng, 64, 32, 8, scale=0.1))


def depthwise_convolution() -> Built:
    """A depthwise convolution of images, then a pointwise layer.

    After jax-ml/jax#23713: three times slower than PyTorch on a CPU.
    """
    channels = 64

    def fn(x: Any, kernel: Any, mix: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=names, feature_group_count=channels
        )
        return jax.nn.gelu(y) @ mix

    rng = generator()
    kernel = normal(rng, 3, 3, 1, channels, scale=0.3)
    return fn, (
        normal(rng, 1, 24, 24, channels),
        kernel,
        normal(rng, channels, channels, scale=0.1),
    )


def signal_memory() -> Built:
    """Samples of a signal one by one: a window of the past, a small network, one write.

    After jax-ml/jax#7009: a scan over ten thousand samples, hardly faster on any device.
    """
    length, window = 10_000, 50

    def fn(memory: Any, w1: Any, b1: Any, w2: Any) -> Any:
        def step(memory: Any, t: Any) -> Any:
            past = lax.dynamic_slice(memory, (t,), (window,))
            x = jnp.tanh(jnp.tanh(past @ w1 + b1) @ w2)
            return lax.dynamic_update_index_in_dim(memory, x, t + window, 0), None

        return lax.scan(step, memory, jnp.arange(length, dtype=jnp.int32))[0]

    rng = generator()
    memory = jnp.zeros(length + window).at[:window].set(normal(rng, window))
    weights = (
        normal(rng, window, 16, scale=0.2),
        normal(rng, 16, scale=0.1),
        normal(rng, 16, scale=0.4),
    )
    return fn, (memory, *weights)


def _normed(x: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)


def text_decoder() -> Built:
    """Greedy generation by a small transformer that reads the whole text again for each token.

    After jaymody/picoGPT#11: slower than NumPy.
    """
    vocabulary, width, heads, layers, length, start = 96, 48, 4, 2, 24, 12

    def logits(tokens: Any, embedding: Any, places: Any, blocks: Any) -> Any:
        x = embedding[tokens] + places
        mask = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)
        for qkv, out, up, down in blocks:
            parts = (_normed(x) @ qkv).reshape(length, 3, heads, width // heads)
            q, k, v = parts[:, 0], parts[:, 1], parts[:, 2]
            score = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(width / heads) + mask
            mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(score, -1), v)
            x = x + mixed.reshape(length, width) @ out
            x = x + jax.nn.gelu(_normed(x) @ up) @ down
        return _normed(x) @ embedding.T

    def fn(tokens: Any, embedding: Any, places: Any, blocks: Any) -> Any:
        def step(tokens: Any, t: Any) -> Any:
            scores = logits(tokens, embedding, places, blocks)[t]
            return tokens.at[t + 1].set(jnp.argmax(scores).astype(jnp.int32)), jnp.max(scores)

        return lax.scan(step, tokens, jnp.arange(start - 1, length - 1))

    rng = generator()
    shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    blocks = [tuple(normal(rng, *s, scale=0.15) for s in shapes) for _ in range(layers)]
    tokens = jnp.asarray(rng.integers(0, vocabulary, length), jnp.int32).at[start:].set(0)
    return fn, (
        tokens,
        normal(rng, vocabulary, width),
        normal(rng, length, width, scale=0.3),
        blocks,
    )


def vector_messages() -> Built:
    """Gradient of a network on a graph with scalars and vectors, joined by a tensor product.

    After e3nn/e3nn-jax#38: the backward pass of a linear layer and the product became far slower.
    """
    nodes, edges, width = 64, 512, 8

    def layer(s: Any, v: Any, w: Any, unit: Any, sender: Any, receiver: Any) -> Any:
        a, b = s[sender], v[sender]
        dot = jnp.sum(b * unit[:, None], -1)
        scalars = jnp.concatenate([a, dot], -1) @ w[0]
        cross = jnp.cross(b, unit[:, None])
        parts = jnp.concatenate([a[..., None] * unit[:, None], b, cross], 1)
        vectors = jnp.einsum("eci,cd->edi", parts, w[1])
        s = jax.ops.segment_sum(scalars, receiver, nodes) / 5
        v = jax.ops.segment_sum(vectors, receiver, nodes) / 5
        return jax.nn.silu(s), v * jax.nn.sigmoid(s)[..., None]

    def loss(weights: Any, places: Any, features: Any, sender: Any, receiver: Any) -> Any:
        gap = places[sender] - places[receiver]
        unit = gap / jnp.sqrt(jnp.sum(gap**2, -1, keepdims=True) + 1e-3)
        s, v = features, jnp.zeros((nodes, width, 3))
        for w in weights:
            s, v = layer(s, v, w, unit, sender, receiver)
        return jnp.mean(s**2) + jnp.mean(v**2)

    rng = generator()
    sender = rng.integers(0, nodes, edges)
    receiver = (sender + rng.integers(1, nodes, edges)) % nodes
    weights = [
        (normal(rng, 2 * width, width, scale=0.3), normal(rng, 3 * width, width, scale=0.3))
        for _ in range(2)
    ]
    graph = (jnp.asarray(sender, jnp.int32), jnp.asarray(receiver, jnp.int32))
    args = (weights, normal(rng, nodes, 3), normal(rng, nodes, width), *graph)
    return jax.value_and_grad(loss, (0, 1)), args


def conditional_layers() -> Built:
    """A condition per example between two small matrices, applied some times, by vmap.

    After jax-ml/jax#7159: the batched condition leads to inefficient products.
    """
    batch, size, hidden, layers = 512, 3, 5, 6

    def one(x: Any, first: Any, second: Any, back: Any) -> Any:
        for i in range(layers):
            h = lax.cond(
                jnp.sum(x) > 0, lambda x, i=i: first[i] @ x, lambda x, i=i: second[i] @ x, x
            )
            x = x + 0.1 * jnp.tanh(back[i] @ h)
        return x

    rng = generator()
    matrices = (normal(rng, layers, hidden, size), normal(rng, layers, hidden, size))
    args = (normal(rng, batch, size), *matrices, normal(rng, layers, size, hidden))
    return jax.vmap(one, (0, None, None, None)), args


def reservoirs() -> Built:
    """States of a reservoir network for several series, one series after the other by a map.

    After reservoirpy/reservoirpy#233: the map scales poorly, no batched product reaches the backend.
    """
    series, length, units = 16, 200, 100

    def fn(inputs: Any, w_in: Any, w: Any, start: Any) -> Any:
        def run(one: Any) -> Any:
            def step(x: Any, u: Any) -> Any:
                x = 0.7 * x + 0.3 * jnp.tanh(w_in @ u + w @ x)
                return x, x

            return lax.scan(step, start, one)[1]

        return lax.map(run, inputs)

    rng = generator()
    w = rng.uniform(-1, 1, (units, units)) * (rng.uniform(size=(units, units)) < 0.1)
    w *= 0.9 / np.max(np.abs(np.linalg.eigvals(w)))
    weights = (normal(rng, units, 1), jnp.asarray(w, jnp.float32), jnp.zeros(units))
    return fn, (normal(rng, series, length, 1), *weights)


REPORTS: tuple[Reported, ...] = (
    Reported("transposed_convolution", "jax-ml/jax#23783", transposed_convolution),
    Reported("depthwise_convolution", "jax-ml/jax#23713", depthwise_convolution),
    Reported("signal_memory", "jax-ml/jax#7009", signal_memory),
    Reported("text_decoder", "jaymody/picoGPT#11", text_decoder),
    Reported("vector_messages", "e3nn/e3nn-jax#38", vector_messages),
    Reported("conditional_layers", "jax-ml/jax#7159", conditional_layers),
    Reported("reservoirs", "reservoirpy/reservoirpy#233", reservoirs),
)
"""The programs of this family."""
