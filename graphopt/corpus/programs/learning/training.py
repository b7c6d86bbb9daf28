"""What training consists of besides the model: normalisations and losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, layer_norm, mlp, rms_norm

NORMALISATION = Family("normalisation")
LOSS = Family("loss")
FAMILIES = (NORMALISATION, LOSS)


@NORMALISATION.program(
    "batch_norm_train_grad",
    "batch norm with running statistics, f32[16,24,24,32]: gradient",
    gradient=True,
)
def _batch_norm_train_grad() -> Built:
    draws = Draws(0)

    def loss(scale: Array, bias: Array, x: Array, running: Array) -> Tree:
        mean, variance = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
        y = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias)
        return jnp.mean(y**2), 0.9 * running + 0.1 * jnp.stack([mean, variance])

    args = (draws.normal(32), draws.normal(32), draws.normal(16, 24, 24, 32), draws.normal(2, 32))
    return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True), args


@NORMALISATION.program(
    "layer_norm_residual", "dropout mask, residual and layer norm of f32[512,512]"
)
def _layer_norm_residual() -> Built:
    draws = Draws(1)

    def run(x: Array, residual: Array, keep: Array, scale: Array, bias: Array) -> Tree:
        total = residual + jnp.where(keep, x / 0.9, 0.0)
        return total, layer_norm(total, scale, bias)

    keep = draws.uniform(512, 512) < 0.9
    arrays = (draws.normal(512, 512), draws.normal(512, 512))
    return run, (*arrays, keep, draws.normal(512), draws.normal(512))


@NORMALISATION.program("layer_norm_grad", "gradient of layer norm over f32[512,256]", gradient=True)
def _layer_norm_grad() -> Built:
    draws = Draws(2)

    def pull(x: Array, scale: Array, bias: Array, cotangent: Array) -> Tree:
        y, back = jax.vjp(layer_norm, x, scale, bias)
        return y, back(cotangent)

    return pull, (
        draws.normal(4096, 256),
        draws.normal(256),
        draws.normal(256),
        draws.normal(4096, 256),
    )


@NORMALISATION.program(
    "group_norm_silu_grad",
    "gradient of group norm and SiLU over f32[4,24,24,32], 8 groups",
    gradient=True,
)
def _group_norm_silu_grad() -> Built:
    draws = Draws(3)

    def loss(x: Array, scale: Array) -> Array:
        groups = x.reshape(x.shape[0], -1, 8, x.shape[-1] // 8)
        mean = jnp.mean(groups, axis=(1, 3), keepdims=True)
        variance = jnp.var(groups, axis=(1, 3), keepdims=True)
        normed = ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return jnp.mean(jnp.cos(jax.nn.silu(normed * scale)))

    return jax.grad(loss, argnums=(0, 1)), (draws.normal(4, 24, 24, 32), draws.normal(32))


@NORMALISATION.program(
    "adaptive_instance_norm", "style transfer of channel statistics, two f32[4,48,48,16]"
)
def _adaptive_instance_norm() -> Built:
    draws = Draws(4)

    def run(content: Array, style: Array) -> Tree:
        def statistics(x: Array) -> Tree:
            mean = jnp.mean(x, axis=(1, 2), keepdims=True)
            return mean, jnp.sqrt(jnp.mean((x - mean) ** 2, axis=(1, 2), keepdims=True) + 1e-5)

        (mean, spread), (target, width) = statistics(content), statistics(style)
        return (content - mean) / spread * width + target

    return run, (draws.normal(4, 48, 48, 16), 2.0 + draws.normal(4, 48, 48, 16))


@NORMALISATION.program("rms_norm_chain", "four RMS norms around gated units, f32[256,256]")
def _rms_norm_chain() -> Built:
    draws = Draws(5)

    def run(x: Array, scales: Array) -> Array:
        for scale in scales:
            normed = rms_norm(x, scale)
            x = x + jax.nn.sigmoid(normed) * jnp.tanh(jnp.roll(normed, 1, axis=-1))
        return x

    return run, (draws.normal(256, 256), 1.0 + draws.normal(4, 256, scale=0.1))


@NORMALISATION.program(
    "spectral_norm_weights", "15 power iterations and weight norm of f32[192,128]", loops=True
)
def _spectral_norm_weights() -> Built:
    draws = Draws(6)

    def run(weights: Array, u: Array, gain: Array) -> Tree:
        def step(_: Array, u: Array) -> Array:
            v = weights.T @ u
            u = weights @ (v * lax.rsqrt(jnp.sum(v**2) + 1e-9))
            return u * lax.rsqrt(jnp.sum(u**2) + 1e-9)

        u = lax.fori_loop(0, 15, step, u)
        largest = jnp.linalg.norm(weights.T @ u)
        columns = jnp.sqrt(jnp.sum(weights**2, axis=0) + 1e-9)
        return weights / largest, gain * weights / columns, u

    return run, (draws.normal(192, 128), draws.normal(192), draws.normal(128))


@NORMALISATION.program(
    "local_response_norm_grad",
    "AlexNet's response norm over f32[2,20,20,48]: gradient",
    gradient=True,
)
def _local_response_norm_grad() -> Built:
    def loss(x: Array) -> Array:
        total = lax.reduce_window(x**2, 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), "SAME")
        return jnp.sum(jnp.tanh(x / (2.0 + 1e-1 * total) ** 0.75))

    return jax.value_and_grad(loss), (Draws(7).normal(2, 20, 20, 48),)


@LOSS.program(
    "label_smoothing_grad", "smoothed cross entropy of f32[256,512] logits: gradient", gradient=True
)
def _label_smoothing_grad() -> Built:
    draws = Draws(8)

    def loss(logits: Array, labels: Array) -> Tree:
        target = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)
        return jnp.mean(optax.softmax_cross_entropy(logits, target))

    return jax.value_and_grad(loss), (draws.normal(256, 512), draws.integers(4096, 256))


@LOSS.program(
    "z_loss_masked_grad",
    "masked token loss with z-loss and accuracy, f32[8,64,200]: gradient",
    gradient=True,
)
def _z_loss_masked_grad() -> Built:
    draws = Draws(9)

    def loss(logits: Array, labels: Array, lengths: Array) -> Tree:
        mask = (jnp.arange(logits.shape[1])[None] < lengths[:, None]).astype(jnp.float32)
        total = jax.nn.logsumexp(logits, axis=-1)
        picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        right = (jnp.max(logits, axis=-1) == picked).astype(jnp.float32)
        count = jnp.sum(mask)
        value = jnp.sum(mask * (total - picked + 1e-4 * total**2)) / count
        return value, jnp.sum(mask * right) / count

    args = (draws.normal(8, 64, 200), draws.integers(200, 8, 64), draws.integers(60, 8, low=20))
    return jax.value_and_grad(loss, has_aux=True), args


@LOSS.program(
    "focal_detection_grad",
    "focal and smooth-L1 loss with IoU over 4096 boxes: gradient",
    gradient=True,
)
def _focal_detection_grad() -> Built:
    draws = Draws(10)

    def loss(scores: Array, boxes: Array, truth: Array, labels: Array) -> Array:
        chance = jax.nn.sigmoid(scores)
        right = jnp.where(labels > 0, chance, 1.0 - chance)
        focal = -((1.0 - right) ** 2) * jnp.log(right + 1e-6)
        gap = jnp.abs(boxes - truth)
        smooth = jnp.where(gap < 1.0, 0.5 * gap**2, gap - 0.5)
        low = jnp.maximum(boxes[:, :2], truth[:, :2])
        high = jnp.minimum(boxes[:, 2:], truth[:, 2:])
        shared = jnp.prod(jnp.maximum(high - low, 0.0), axis=-1)
        area = jnp.prod(boxes[:, 2:] - boxes[:, :2], -1) + jnp.prod(truth[:, 2:] - truth[:, :2], -1)
        overlap = shared / (area - shared + 1e-6)
        return jnp.mean(focal) + jnp.mean(smooth) + jnp.mean(1.0 - overlap)

    low = draws.uniform(4096, 2)
    boxes = np.concatenate([low, low + draws.uniform(4096, 2, low=0.5, high=1.5)], axis=1)
    args = (
        draws.normal(4096, 8),
        boxes,
        boxes + draws.normal(4096, 4, scale=0.1),
        draws.integers(2, 4096, 8),
    )
    return jax.value_and_grad(loss, argnums=(0, 1)), args


@LOSS.program(
    "info_nce_grad",
    "two-way contrastive loss between f32[128,64] embeddings: gradient",
    gradient=True,
)
def _info_nce_grad() -> Built:
    draws = Draws(11)

    def loss(left: Array, right: Array, heat: Array) -> Array:
        left = left / jnp.linalg.norm(left, axis=-1, keepdims=True)
        right = right / jnp.linalg.norm(right, axis=-1, keepdims=True)
        scores = jnp.exp(heat) * left @ right.T
        own = jnp.diagonal(scores)
        both = jax.nn.logsumexp(scores, axis=0) + jax.nn.logsumexp(scores, axis=1)
        return jnp.mean(0.5 * both - own)

    args = (draws.normal(128, 64), draws.normal(128, 64), np.float32(1.0))
    return jax.value_and_grad(loss, argnums=(0, 1, 2)), args


@LOSS.program(
    "triplet_mining_grad", "batch-hard triplet loss over f32[256,32]: gradient", gradient=True
)
def _triplet_mining_grad() -> Built:
    draws = Draws(12)

    def loss(x: Array, labels: Array) -> Array:
        square = jnp.sum(x**2, axis=-1)
        distance = jnp.sqrt(jnp.maximum(square[:, None] + square[None] - 2.0 * x @ x.T, 1e-3))
        same = labels[:, None] == labels[None]
        hardest = jnp.max(jnp.where(same, distance, 0.0), axis=1)
        nearest = jnp.min(jnp.where(same, 1e3, distance), axis=1)
        return jnp.mean(jax.nn.softplus(hardest - nearest + 0.3))

    return jax.value_and_grad(loss), (draws.normal(256, 32), draws.integers(8, 256))


@LOSS.program(
    "ctc_grad",
    "connectionist temporal classification, f32[4,40,24], labels i32[4,8]: gradient",
    gradient=True,
    loops=True,
)
def _ctc_grad() -> Built:
    draws = Draws(13)

    def loss(logits: Array, labels: Array, padding: Array) -> Tree:
        return jnp.mean(optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, padding))

    padding = (np.arange(8)[None] >= np.array([[8], [6], [5], [7]])).astype(np.float32)
    return jax.value_and_grad(loss), (
        draws.normal(4, 40, 24),
        draws.integers(24, 4, 8, low=1),
        padding,
    )


@LOSS.program(
    "distillation_grad",
    "student loss against a teacher with temperature, f32[128,100]: gradient",
    gradient=True,
)
def _distillation_grad() -> Built:
    draws = Draws(14)

    def loss(student: Tree, teacher: Tree, x: Array) -> Array:
        target = jax.nn.softmax(mlp(teacher, x) / 4.0)
        guess = jax.nn.log_softmax(mlp(student, x) / 4.0)
        divergence = jnp.sum(target * (jnp.log(target + 1e-9) - guess), axis=-1)
        return 16.0 * jnp.mean(divergence)

    args = (draws.layers(48, 32, 100), draws.layers(48, 96, 100), draws.normal(128, 48))
    return jax.value_and_grad(loss), args


@LOSS.program(
    "soft_dtw_grad",
    "soft dynamic time warping of two f32[32,4] series: gradient",
    gradient=True,
    loops=True,
)
def _soft_dtw_grad() -> Built:
    draws = Draws(15)

    def loss(left: Array, right: Array) -> Tree:
        cost = jnp.sum((left[:, None] - right[None]) ** 2, axis=-1)

        def soft_min(*values: Array) -> Array:
            return -jax.nn.logsumexp(-jnp.stack(values), axis=0)

        def row(above: Array, costs: Array) -> tuple[Array, None]:
            def cell(carry: Tree, now: Tree) -> tuple[Tree, Array]:
                left, corner = carry
                cost, up = now
                value = cost + soft_min(left, corner, up)
                return (value, up), value

            start = (jnp.float32(1e3), above[0])
            values = lax.scan(cell, start, (costs, above[1:]))[1]
            return jnp.concatenate([jnp.full(1, 1e3), values]), None

        start = jnp.full(right.shape[0] + 1, 1e3).at[0].set(0.0)
        return lax.scan(row, start, cost)[0][-1]

    return jax.value_and_grad(loss), (
        draws.normal(32, 4, scale=0.3),
        draws.normal(32, 4, scale=0.3),
    )
