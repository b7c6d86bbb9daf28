"""Image models: residual and encoder-decoder networks, mixers, vision transformers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, conv, cross_entropy, layer_norm, pool

CONVNET = Family("convnet")
PATCHES = Family("patch-model")
FAMILIES = (CONVNET, PATCHES)


def _batch_norm(x: Array, scale: Array, bias: Array) -> Array:
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean((x - mean) ** 2, axis=(0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def _norm_params(draws: Draws, channels: int) -> Tree:
    return 1.0 + draws.normal(channels, scale=0.1), draws.normal(channels, scale=0.1)


@CONVNET.program(
    "resnet_basic_grad",
    "two basic residual blocks with batch statistics, f32[4,16,16,16], gradient",
    gradient=True,
)
def _resnet_basic_grad() -> Built:
    draws = Draws(0)
    blocks = [
        [(draws.kernel(3, 3, 16, 16), *_norm_params(draws, 16)) for _ in range(2)] for _ in range(2)
    ]

    def loss(blocks: Tree, x: Array) -> Array:
        for (first, *one), (second, *two) in blocks:
            hidden = jax.nn.relu(_batch_norm(conv(x, first), *one))
            x = jax.nn.relu(x + _batch_norm(conv(hidden, second), *two))
        return jnp.mean(x**2)

    return jax.value_and_grad(loss), (blocks, draws.normal(4, 16, 16, 16))


class _Bottleneck(nnx.Module):
    """1x1, 3x3, 1x1 convolutions with group normalisation around an identity."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        inner = width // 4
        self.down = nnx.Conv(width, inner, (1, 1), use_bias=False, rngs=rngs)
        self.middle = nnx.Conv(inner, inner, (3, 3), use_bias=False, rngs=rngs)
        self.up = nnx.Conv(inner, width, (1, 1), use_bias=False, rngs=rngs)
        self.norms = nnx.List([nnx.GroupNorm(n, 4, rngs=rngs) for n in (inner, inner, width)])

    def __call__(self, x: Array) -> Tree:
        hidden = nnx.relu(self.norms[0](self.down(x)))
        hidden = nnx.relu(self.norms[1](self.middle(hidden)))
        return nnx.relu(x + self.norms[2](self.up(hidden)))


@CONVNET.program(
    "resnet_bottleneck_forward", "three nnx bottleneck blocks with group norm, f32[2,20,20,64]"
)
def _resnet_bottleneck_forward() -> Built:
    def make() -> Tree:
        return nnx.List([_Bottleneck(64, nnx.Rngs(0)) for _ in range(3)])

    blocks, abstract = nnx.split(nnx.eval_shape(make))
    draws = Draws(1)
    state = draws.parameters(lambda: nnx.to_pure_dict(abstract))

    def forward(state: Tree, x: Array) -> Tree:
        for block in nnx.merge(blocks, nnx.State(state)):
            x = block(x)
        return x

    return forward, (state, draws.normal(2, 20, 20, 64))


def _unet_params(draws: Draws, base: int) -> Tree:
    widths = (base, 2 * base, 4 * base)
    inputs = (3, base, 2 * base)
    pairs = list(zip(inputs, widths, strict=True))
    return {
        "down": [[draws.kernel(3, 3, i, o), draws.kernel(3, 3, o, o)] for i, o in pairs],
        "up": [
            [draws.kernel(2, 2, 2 * w, w), draws.kernel(3, 3, 2 * w, w)]
            for w in (2 * base, base)
        ],
        "out": draws.kernel(1, 1, base, 2),
    }  # fmt: skip


def _unet(params: Tree, x: Array) -> Array:
    skips = []
    for depth, (first, second) in enumerate(params["down"]):
        x = pool(x, 2, 2) if depth else x
        x = jax.nn.relu(conv(jax.nn.relu(conv(x, first)), second))
        skips.append(x)
    for (transposed, kernel), skip in zip(params["up"], skips[-2::-1], strict=True):
        x = lax.conv_transpose(
            x, transposed, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(conv(jnp.concatenate([x, skip], axis=-1), kernel))
    return conv(x, params["out"])


@CONVNET.program("unet_forward", "three-level U-Net segmentation of f32[1,48,48,3]")
def _unet_forward() -> Built:
    draws = Draws(2)
    return _unet, (_unet_params(draws, 8), draws.normal(1, 48, 48, 3))


@CONVNET.program(
    "unet_dice_grad",
    "three-level U-Net with Dice and cross-entropy loss, f32[1,32,32,3]",
    gradient=True,
)
def _unet_dice_grad() -> Built:
    draws = Draws(3)

    def loss(params: Tree, x: Array, labels: Array) -> Array:
        logits = _unet(params, x)
        chance = jax.nn.softmax(logits)[..., 1]
        truth = labels.astype(jnp.float32)
        dice = 1.0 - 2.0 * jnp.sum(chance * truth) / (jnp.sum(chance) + jnp.sum(truth) + 1.0)
        return dice + cross_entropy(logits, labels)

    args = (_unet_params(draws, 6), draws.normal(1, 32, 32, 3), draws.integers(2, 1, 32, 32))
    return jax.value_and_grad(loss), args


@CONVNET.program(
    "mobilenet_inverted_residuals", "three inverted residuals with squeeze-excite, f32[1,24,24,16]"
)
def _mobilenet_inverted_residuals() -> Built:
    draws = Draws(4)

    def block() -> Tree:
        return {
            "expand": draws.kernel(1, 1, 16, 64),
            "depth": draws.kernel(3, 3, 1, 64),
            "squeeze": [draws.dense(64, 16), draws.dense(16, 64)],
            "project": draws.kernel(1, 1, 64, 16),
        }

    def run(blocks: Tree, x: Array) -> Array:
        for params in blocks:
            hidden = jax.nn.hard_swish(conv(x, params["expand"]))
            hidden = conv(hidden, params["depth"], feature_group_count=64)
            hidden = jax.nn.hard_swish(hidden)
            gate = jnp.mean(hidden, axis=(1, 2))
            gate = jax.nn.hard_sigmoid(
                jax.nn.relu(gate @ params["squeeze"][0]) @ params["squeeze"][1]
            )
            x = x + conv(hidden * gate[:, None, None], params["project"])
        return x

    return run, ([block() for _ in range(3)], draws.normal(1, 24, 24, 16))


@CONVNET.program(
    "densenet_grad", "gradient of a dense block of five layers, f32[2,16,16,8]", gradient=True
)
def _densenet_grad() -> Built:
    draws = Draws(5)
    layers = [
        (draws.kernel(3, 3, 8 + 6 * depth, 6), *_norm_params(draws, 8 + 6 * depth))
        for depth in range(5)
    ]

    def loss(layers: Tree, x: Array) -> Array:
        for kernel, scale, bias in layers:
            fresh = conv(jax.nn.relu(_batch_norm(x, scale, bias)), kernel)
            x = jnp.concatenate([x, fresh], axis=-1)
        return jnp.mean(jnp.abs(pool(x, 2, 2, "mean")))

    return jax.value_and_grad(loss, argnums=(0, 1)), (layers, draws.normal(2, 16, 16, 8))


@CONVNET.program(
    "convnext_block_grad", "ConvNeXt block on f32[2,16,16,32]: gradient", gradient=True
)
def _convnext_block_grad() -> Built:
    draws = Draws(6)
    params = {
        "depth": draws.kernel(7, 7, 1, 32),
        "up": draws.dense(32, 128),
        "down": draws.dense(128, 32),
        "gamma": draws.normal(32, scale=0.1),
        "grn": draws.normal(2, 128, scale=0.1),
    }

    def loss(params: Tree, x: Array) -> Array:
        hidden = layer_norm(conv(x, params["depth"], feature_group_count=32))
        hidden = jax.nn.gelu(hidden @ params["up"])
        response = jnp.sqrt(jnp.sum(hidden**2, axis=(1, 2), keepdims=True) + 1e-6)
        response = response / jnp.mean(response, axis=-1, keepdims=True)
        hidden = hidden + params["grn"][0] * (hidden * response) + params["grn"][1]
        return jnp.mean((x + params["gamma"] * (hidden @ params["down"])) ** 2)

    return jax.value_and_grad(loss), (params, draws.normal(2, 16, 16, 32))


def _patches(images: Array, size: int) -> Array:
    """Cut [B, H, W, C] into [B, N, size * size * C]."""
    batch, height, width, channels = images.shape
    grid = images.reshape(batch, height // size, size, width // size, size, channels)
    return grid.swapaxes(2, 3).reshape(batch, -1, size * size * channels)


def _mixer_block(draws: Draws, tokens: int, width: int) -> Tree:
    return {
        "tokens": [draws.dense(tokens, 2 * tokens), draws.dense(2 * tokens, tokens)],
        "channels": [draws.dense(width, 2 * width), draws.dense(2 * width, width)],
    }


def _mixer(params: Tree, images: Array) -> Tree:
    x = _patches(images, 4) @ params["embed"]
    for block in params["blocks"]:
        mixed = layer_norm(x).swapaxes(1, 2) @ block["tokens"][0]
        x = x + (jax.nn.gelu(mixed) @ block["tokens"][1]).swapaxes(1, 2)
        x = x + jax.nn.gelu(layer_norm(x) @ block["channels"][0]) @ block["channels"][1]
    return jnp.mean(layer_norm(x), axis=1) @ params["out"]


def _mixer_inputs(seed: int, blocks: int, batch: int) -> Tree:
    draws = Draws(seed)
    params = {
        "embed": draws.dense(48, 64),
        "blocks": [_mixer_block(draws, 64, 64) for _ in range(blocks)],
        "out": draws.dense(64, 10),
    }
    return params, draws.normal(batch, 32, 32, 3)


@PATCHES.program("mlp_mixer_forward", "four mixer blocks over 64 patches, f32[4,32,32,3]")
def _mlp_mixer_forward() -> Built:
    return _mixer, _mixer_inputs(7, 4, 4)


@PATCHES.program(
    "mlp_mixer_grad", "two mixer blocks, loss and gradient, f32[4,32,32,3]", gradient=True
)
def _mlp_mixer_grad() -> Built:
    def loss(params: Tree, images: Array, labels: Array) -> Array:
        return cross_entropy(_mixer(params, images), labels)

    return jax.value_and_grad(loss), (*_mixer_inputs(8, 2, 4), Draws(9).integers(10, 4))


def _attention(qkv: Array, heads: int) -> Array:
    """Mix [..., N, 3 D] over N."""
    *lead, tokens, width = qkv.shape
    parts = qkv.reshape(*lead, tokens, 3, heads, width // 3 // heads)
    query, key, value = parts[..., 0, :, :], parts[..., 1, :, :], parts[..., 2, :, :]
    scores = jnp.einsum("...qhd,...khd->...hqk", query, key) / math.sqrt(query.shape[-1])
    mixed = jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores), value)
    return mixed.reshape(*lead, tokens, width // 3)


@PATCHES.program(
    "vit_grad", "vision transformer with a class token, f32[2,32,32,3]: gradient", gradient=True
)
def _vit_grad() -> Built:
    draws = Draws(10)
    params = {
        "embed": draws.dense(192, 48),
        "token": draws.normal(48),
        "place": draws.normal(17, 48, scale=0.1),
        "blocks": [[draws.dense(48, 144), draws.dense(48, 48), *(draws.dense(48, 96), draws.dense(96, 48))]
                   for _ in range(2)],
        "out": draws.dense(48, 10),
    }  # fmt: skip

    def loss(params: Tree, images: Array, labels: Array) -> Array:
        x = _patches(images, 8) @ params["embed"]
        token = jnp.broadcast_to(params["token"], (x.shape[0], 1, x.shape[2]))
        x = jnp.concatenate([token, x], axis=1) + params["place"]
        for qkv, out, up, down in params["blocks"]:
            x = x + _attention(layer_norm(x) @ qkv, 4) @ out
            x = x + jax.nn.gelu(layer_norm(x) @ up) @ down
        return cross_entropy(layer_norm(x[:, 0]) @ params["out"], labels)

    args = (params, draws.normal(2, 32, 32, 3), draws.integers(10, 2))
    return jax.value_and_grad(loss), args


@PATCHES.program(
    "swin_windows", "two shifted-window attention blocks, windows of 4x4, f32[2,16,16,32]"
)
def _swin_windows() -> Built:
    draws = Draws(11)
    blocks = [[draws.dense(32, 96), draws.dense(32, 32), draws.dense(32, 64), draws.dense(64, 32)]
              for _ in range(2)]  # fmt: skip

    def run(blocks: Tree, x: Array) -> Array:
        batch, side, _, width = x.shape
        for shift, (qkv, out, up, down) in zip((0, 2), blocks, strict=True):
            moved = jnp.roll(layer_norm(x), (-shift, -shift), axis=(1, 2))
            windows = moved.reshape(batch, side // 4, 4, side // 4, 4, width).swapaxes(2, 3)
            mixed = _attention(windows.reshape(batch, -1, 16, width) @ qkv, 4) @ out
            mixed = mixed.reshape(batch, side // 4, side // 4, 4, 4, width).swapaxes(2, 3)
            x = x + jnp.roll(mixed.reshape(x.shape), (shift, shift), axis=(1, 2))
            x = x + jax.nn.gelu(layer_norm(x) @ up) @ down
        merged = x.reshape(batch, side // 2, 2, side // 2, 2, width).swapaxes(2, 3)
        return layer_norm(merged.reshape(batch, side // 2, side // 2, 4 * width))

    return run, (blocks, draws.normal(2, 16, 16, 32))


@PATCHES.program(
    "gmlp_grad", "gated MLP with spatial gating units, f32[4,48,32]: gradient", gradient=True
)
def _gmlp_grad() -> Built:
    draws = Draws(12)
    blocks = [
        {"up": draws.dense(32, 128), "space": draws.dense(48, 48), "down": draws.dense(64, 32)}
        for _ in range(3)
    ]

    def loss(blocks: Tree, x: Array) -> Array:
        for block in blocks:
            left, right = jnp.split(jax.nn.gelu(layer_norm(x) @ block["up"]), 2, axis=-1)
            gate = jnp.einsum("btc,ts->bsc", layer_norm(right), block["space"]) + 1.0
            x = x + (left * gate) @ block["down"]
        return jnp.mean(x**2)

    return jax.value_and_grad(loss), (blocks, draws.normal(4, 48, 32))
