"""Training of networks, written by hand."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, layer_norm, layers_of, mlp, normal


def mlp_adam(width: int, steps: int) -> Program:
    """A perceptron by Adam, written by hand."""

    def loss_fn(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        log_probs = jax.nn.log_softmax(mlp(params, x))
        return -jnp.mean(jnp.sum(jax.nn.one_hot(y, 10) * log_probs, axis=-1))

    def train(params: Any, xs: jax.Array, ys: jax.Array) -> Any:
        def step(state: Any, batch: Any) -> Any:
            params, m, v, t = state
            loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
            t = t + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, grads)
            m_hat = jax.tree.map(lambda m: m / (1 - 0.9**t), m)
            v_hat = jax.tree.map(lambda v: v / (1 - 0.999**t), v)
            params = jax.tree.map(
                lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m_hat, v_hat
            )
            return (params, m, v, t), loss

        zeros = jax.tree.map(jnp.zeros_like, params)
        (params, *_), losses = lax.scan(step, (params, zeros, zeros, 0), (xs, ys))
        return params, losses

    return train, (layers_of(32, width, width, 10), normal(steps, 64, 32), integers(10, steps, 64))


def lstm_gradient(hidden: int, length: int) -> Program:
    """One step down the gradient through an LSTM."""

    def cell(params: Any, carry: Any, x: jax.Array) -> Any:
        h, c = carry
        gates = x @ params["wx"] + h @ params["wh"] + params["b"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss_fn(params: Any, xs: jax.Array, ys: jax.Array) -> jax.Array:
        zeros = jnp.zeros((xs.shape[1], hidden))
        _, hs = lax.scan(partial(cell, params), (zeros, zeros), xs)
        return jnp.mean((hs @ params["out"] - ys) ** 2)

    def update(params: Any, xs: jax.Array, ys: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, xs, ys)
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
        scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
        return jax.tree.map(lambda p, g: p - 0.1 * scale * g, params, grads), loss

    params = {
        "wx": normal(16, 4 * hidden, seed=1, scale=0.25),
        "wh": normal(hidden, 4 * hidden, seed=2, scale=hidden**-0.5),
        "b": jnp.zeros(4 * hidden, jnp.float32),
        "out": normal(hidden, 4, seed=3, scale=hidden**-0.5),
    }
    return update, (params, normal(length, 16, 16), normal(length, 16, 4, seed=4))


def transformer_gradient(width: int, length: int) -> Program:
    """Loss and gradient of one causal block with an embedding and smoothed labels."""
    heads, vocabulary = 4, 128

    def block(p: Any, x: jax.Array) -> jax.Array:
        y = layer_norm(x, p["g1"], p["b1"])
        q, k, v = jnp.split(y @ p["qkv"], 3, axis=-1)
        q, k, v = (a.reshape(length, heads, -1) for a in (q, k, v))
        scores = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(q.shape[-1])
        mask = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        x = x + jnp.einsum("hqk,khd->qhd", weights, v).reshape(length, width) @ p["out"]
        y = layer_norm(x, p["g2"], p["b2"])
        return x + jax.nn.gelu(y @ p["up"]) @ p["down"]

    def loss_fn(p: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        def single(tokens: jax.Array, targets: jax.Array) -> jax.Array:
            x = p["embed"][tokens] + p["position"]
            logits = layer_norm(block(p, x), p["g3"], p["b3"]) @ p["embed"].T
            smooth = 0.9 * jax.nn.one_hot(targets, vocabulary) + 0.1 / vocabulary
            return -jnp.mean(jnp.sum(smooth * jax.nn.log_softmax(logits), axis=-1))

        return jnp.mean(jax.vmap(single)(tokens, targets))

    shapes = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    params = {
        name: normal(*s, seed=i, scale=s[0] ** -0.5) for i, (name, s) in enumerate(shapes.items())
    }
    params |= {f"g{i}": jnp.ones(width, jnp.float32) for i in (1, 2, 3)}
    params |= {f"b{i}": jnp.zeros(width, jnp.float32) for i in (1, 2, 3)}
    params |= {
        "embed": normal(vocabulary, width, scale=0.1),
        "position": normal(length, width, seed=9, scale=0.1),
    }
    args = (params, integers(vocabulary, 4, length), integers(vocabulary, 4, length, seed=1))
    return jax.value_and_grad(loss_fn), args


def kmeans(points: int, clusters: int) -> Program:
    """Lloyd's iteration by segment sums."""

    def run(x: jax.Array) -> Any:
        def step(_: Any, centers: jax.Array) -> jax.Array:
            labels = assign(centers)
            sums = jax.ops.segment_sum(x, labels, clusters)
            counts = jax.ops.segment_sum(jnp.ones(points), labels, clusters)
            return jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centers)

        def assign(centers: jax.Array) -> jax.Array:
            return jnp.argmin(jnp.sum((x[:, None, :] - centers[None]) ** 2, axis=-1), axis=1)

        centers = lax.fori_loop(0, 10, step, x[:clusters])
        return centers, assign(centers)

    return run, (normal(points, 8),)


def logistic_sgd(features: int, steps: int) -> Program:
    """Logistic regression with momentum over shuffled minibatches."""

    def train(x: jax.Array, y: jax.Array, seed: jax.Array) -> Any:
        def loss_fn(w: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            logits = x @ w[0] + w[1]
            return jnp.mean(jnp.logaddexp(0.0, logits) - y * logits) + 1e-4 * jnp.sum(w[0] ** 2)

        def step(state: Any, index: jax.Array) -> Any:
            w, velocity = state
            loss, grads = jax.value_and_grad(loss_fn)(w, x[index], y[index])
            velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.1 * g, velocity, grads)
            return (jax.tree.map(jnp.add, w, velocity), velocity), loss

        order = jax.random.permutation(jax.random.PRNGKey(seed), x.shape[0]).reshape(steps, -1)
        w = (jnp.zeros(features), jnp.zeros(()))
        (w, _), losses = lax.scan(step, (w, w), order)
        return w, losses

    x = normal(steps * 32, features)
    return train, (x, (x[:, 0] + x[:, 1] > 0).astype(jnp.float32), jnp.int32(0))


def contrastive(batch: int, width: int) -> Program:
    """Gradient of the symmetric contrastive loss of two encoders."""

    def loss_fn(params: Any, a: jax.Array, b: jax.Array) -> jax.Array:
        za, zb = mlp(params["a"], a), mlp(params["b"], b)
        za = za / jnp.linalg.norm(za, axis=-1, keepdims=True)
        zb = zb / jnp.linalg.norm(zb, axis=-1, keepdims=True)
        logits = za @ zb.T * jnp.exp(params["temperature"])
        rows = jnp.diag(jax.nn.log_softmax(logits, axis=1))
        columns = jnp.diag(jax.nn.log_softmax(logits, axis=0))
        return -jnp.mean(rows + columns) / 2

    params = {
        "a": layers_of(32, width, 32),
        "b": layers_of(24, width, 32, seed=5),
        "temperature": jnp.float32(1.0),
    }
    return jax.value_and_grad(loss_fn), (params, normal(batch, 32), normal(batch, 24, seed=1))


def mixture_of_experts(tokens: int, width: int) -> Program:
    """Two of eight experts for each token, densely computed, with a loss of balance; the gradient."""
    experts = 8

    def loss_fn(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        probs = jax.nn.softmax(x @ p["router"], axis=-1)
        gates, chosen = lax.top_k(probs, 2)
        gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
        dispatch = jnp.sum(jax.nn.one_hot(chosen, experts) * gates[..., None], axis=1)
        hidden = jax.nn.silu(jnp.einsum("td,edf->tef", x, p["up"]))
        out = jnp.einsum("tef,efd,te->td", hidden, p["down"], dispatch)
        balance = experts * jnp.sum(jnp.mean(probs, axis=0) * jnp.mean(dispatch > 0, axis=0))
        return jnp.mean((out - y) ** 2) + 0.01 * balance

    params = {
        "router": normal(width, experts, seed=1),
        "up": normal(experts, width, 2 * width, seed=2, scale=width**-0.5),
        "down": normal(experts, 2 * width, width, seed=3, scale=width**-0.5),
    }
    return jax.value_and_grad(loss_fn), (
        params,
        normal(tokens, width),
        normal(tokens, width, seed=4),
    )


def word2vec(vocabulary: int, steps: int) -> Program:
    """Skip-grams with negative samples drawn on the way."""

    def train(
        inner: jax.Array, outer: jax.Array, centers: jax.Array, contexts: jax.Array, seed: jax.Array
    ) -> Any:
        def loss_fn(
            tables: Any, center: jax.Array, context: jax.Array, negative: jax.Array
        ) -> jax.Array:
            v, u, n = tables[0][center], tables[1][context], tables[1][negative]
            positive = jax.nn.log_sigmoid(jnp.sum(v * u, axis=-1))
            negatives = jax.nn.log_sigmoid(-jnp.einsum("bd,bkd->bk", v, n))
            return -jnp.mean(positive + jnp.sum(negatives, axis=-1))

        def step(state: Any, batch: Any) -> Any:
            tables, key = state
            key, sub = jax.random.split(key)
            negative = jax.random.randint(sub, (batch[0].shape[0], 5), 0, vocabulary)
            loss, grads = jax.value_and_grad(loss_fn)(tables, *batch, negative)
            return (jax.tree.map(lambda t, g: t - 0.5 * g, tables, grads), key), loss

        (tables, _), losses = lax.scan(
            step, ((inner, outer), jax.random.PRNGKey(seed)), (centers, contexts)
        )
        return tables, losses

    tables = normal(vocabulary, 32, scale=0.1), normal(vocabulary, 32, seed=1, scale=0.1)
    return train, (
        *tables,
        integers(vocabulary, steps, 128),
        integers(vocabulary, steps, 128, seed=1),
        jnp.int32(0),
    )


def graph_convolution(nodes: int, edges: int) -> Program:
    """Gradient of a two-layer graph convolution, normalised by degrees."""

    def loss_fn(
        params: Any, x: jax.Array, senders: jax.Array, receivers: jax.Array, labels: jax.Array
    ) -> jax.Array:
        degree = jax.ops.segment_sum(jnp.ones(edges), receivers, nodes) + 1.0
        norm = lax.rsqrt(degree[senders] * degree[receivers])
        for i, (w, b) in enumerate(params):
            h = x @ w
            x = (
                jax.ops.segment_sum(h[senders] * norm[:, None], receivers, nodes)
                + h / degree[:, None]
                + b
            )
            x = jax.nn.relu(x) if i + 1 < len(params) else x
        log_probs = jax.nn.log_softmax(x)
        return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=1))

    args = (
        layers_of(32, 32, 7),
        normal(nodes, 32),
        integers(nodes, edges),
        integers(nodes, edges, seed=1),
        integers(7, nodes),
    )
    return jax.value_and_grad(loss_fn), args


def deep_sets(sets: int, members: int) -> Program:
    """Masked sums and maxima over sets of many lengths, and the gradient."""

    def loss_fn(params: Any, x: jax.Array, lengths: jax.Array, y: jax.Array) -> jax.Array:
        mask = jnp.arange(members)[None, :] < lengths[:, None]
        h = jax.nn.elu(mlp(params["phi"], x, jax.nn.elu))
        total = jnp.sum(jnp.where(mask[..., None], h, 0.0), axis=1) / lengths[:, None]
        top = jnp.max(jnp.where(mask[..., None], h, -jnp.inf), axis=1)
        out = mlp(params["rho"], jnp.concatenate([total, top], axis=-1), jax.nn.elu)[:, 0]
        error = jnp.abs(out - y)
        return jnp.mean(jnp.where(error < 1.0, 0.5 * error**2, error - 0.5))

    params = {"phi": layers_of(3, 32, 32), "rho": layers_of(64, 32, 1, seed=3)}
    args = (params, normal(sets, members, 3), 1 + integers(members, sets), normal(sets, seed=2))
    return jax.value_and_grad(loss_fn), args


def vae(batch: int, width: int) -> Program:
    """Gradient of a variational autoencoder's bound, with its noise."""

    def loss_fn(params: Any, x: jax.Array, seed: jax.Array) -> jax.Array:
        mean, log_var = jnp.split(mlp(params["encoder"], x, jnp.tanh), 2, axis=-1)
        noise = jax.random.normal(jax.random.PRNGKey(seed), mean.shape)
        logits = mlp(params["decoder"], mean + jnp.exp(0.5 * log_var) * noise, jnp.tanh)
        likelihood = jnp.sum(
            x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits), axis=-1
        )
        kl = -0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), axis=-1)
        return jnp.mean(kl - likelihood)

    params = {"encoder": layers_of(196, width, 32), "decoder": layers_of(16, width, 196, seed=4)}
    x = (normal(batch, 196) > 0.5).astype(jnp.float32)
    return jax.value_and_grad(loss_fn), (params, x, jnp.int32(3))


def batch_norm(batch: int, side: int) -> Program:
    """A step of a small convolutional net with batch statistics, weight norm and dropout."""

    def convolve(x: jax.Array, v: jax.Array, g: jax.Array) -> jax.Array:
        w = g * v / jnp.sqrt(jnp.sum(v**2, axis=(0, 1, 2)) + 1e-6)
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss_fn(p: Any, stats: Any, x: jax.Array, y: jax.Array, seed: jax.Array) -> Any:
        updated = []
        for layer, (mean, var) in zip(p["layers"], stats, strict=True):
            x = convolve(x, layer["v"], layer["g"])
            mu, s2 = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
            x = jax.nn.relu((x - mu) * lax.rsqrt(s2 + 1e-5) * layer["gain"] + layer["bias"])
            updated.append((0.9 * mean + 0.1 * mu, 0.9 * var + 0.1 * s2))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jnp.mean(x, axis=(1, 2))
        keep = jax.random.bernoulli(jax.random.PRNGKey(seed), 0.8, x.shape)
        logits = jnp.where(keep, x / 0.8, 0.0) @ p["head"]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(batch), y]), updated

    def step(p: Any, stats: Any, x: jax.Array, y: jax.Array, seed: jax.Array) -> Any:
        (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(p, stats, x, y, seed)
        return jax.tree.map(lambda p, g: p - 0.01 * g, p, grads), stats, loss

    ones, zeros = (lambda n: jnp.ones(n, jnp.float32)), (lambda n: jnp.zeros(n, jnp.float32))
    layers = [
        {"v": normal(3, 3, m, n, seed=n), "g": ones(n), "gain": ones(n), "bias": zeros(n)}
        for m, n in ((3, 8), (8, 16))
    ]
    params = {"layers": layers, "head": normal(16, 10, scale=0.25)}
    args = (params, [(zeros(8), ones(8)), (zeros(16), ones(16))], normal(batch, side, side, 3))
    return step, (*args, integers(10, batch), jnp.int32(1))


def adversarial(width: int, steps: int) -> Program:
    """A generator against a discriminator on a ring of eight bumps."""

    def train(g: Any, d: Any, seed: jax.Array) -> Any:
        def real(key: jax.Array) -> jax.Array:
            angle, noise = jax.random.split(key)
            theta = jax.random.randint(angle, (64,), 0, 8) * (2 * jnp.pi / 8)
            return jnp.stack([jnp.cos(theta), jnp.sin(theta)], -1) + 0.05 * jax.random.normal(
                noise, (64, 2)
            )

        def d_loss(d: Any, x: jax.Array, fake: jax.Array) -> jax.Array:
            return jnp.mean(jax.nn.softplus(-critic(d, x)) + jax.nn.softplus(critic(d, fake)))

        def g_loss(g: Any, d: Any, z: jax.Array) -> jax.Array:
            return jnp.mean(jax.nn.softplus(-critic(d, mlp(g, z))))

        def critic(d: Any, x: jax.Array) -> jax.Array:
            return mlp(d, x, partial(jax.nn.leaky_relu, negative_slope=0.2))[:, 0]

        def step(state: Any, key: jax.Array) -> Any:
            g, d = state
            k1, k2 = jax.random.split(key)
            z = jax.random.normal(k1, (64, 8))
            ld, gd = jax.value_and_grad(d_loss)(d, real(k2), lax.stop_gradient(mlp(g, z)))
            d = jax.tree.map(lambda p, q: p - 0.05 * q, d, gd)
            lg, gg = jax.value_and_grad(g_loss)(g, d, z)
            return (jax.tree.map(lambda p, q: p - 0.05 * q, g, gg), d), (lg, ld)

        return lax.scan(step, (g, d), jax.random.split(jax.random.PRNGKey(seed), steps))

    return train, (
        layers_of(8, width, width, 2),
        layers_of(2, width, width, 1, seed=7),
        jnp.int32(0),
    )


SIZES: Final[Sizes] = {
    ("mlp-adam", mlp_adam): ((32, 50), (64, 40), (256, 10)),
    ("lstm-gradient", lstm_gradient): ((32, 64), (128, 32)),
    ("transformer-gradient", transformer_gradient): ((32, 32), (64, 64), (128, 96)),
    ("kmeans", kmeans): ((1_000, 8), (5_000, 16), (10_000, 16)),
    ("logistic-sgd", logistic_sgd): ((16, 200), (128, 200), (512, 400)),
    ("contrastive", contrastive): ((192, 96), (512, 128)),
    ("experts", mixture_of_experts): ((96, 48), (256, 64)),
    ("word2vec", word2vec): ((500, 20), (5_000, 10)),
    ("graph-convolution", graph_convolution): ((1_000, 8_000), (3_000, 20_000), (20_000, 120_000)),
    ("deep-sets", deep_sets): ((32, 60), (128, 100)),
    ("vae", vae): ((96, 96), (256, 128)),
    ("batch-norm", batch_norm): ((12, 16), (16, 32)),
    ("adversarial", adversarial): ((32, 20), (128, 20)),
}
