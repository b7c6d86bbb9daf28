"""Convolutional models: Inception-v3, an AmoebaNet-like network of cells, WaveNet."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from graphopt.corpus.placement.shapes import Build, cross_entropy, shape


class _Parameters:
    """Collects parameter shapes in the order of use, and hands arrays out in the same order."""

    def __init__(self, arrays: list[Any] | None = None) -> None:
        self.arrays = arrays
        self.shapes: list[Any] = []

    def __call__(self, *dims: int) -> Any:
        self.shapes.append(shape(*dims))
        if self.arrays is None:
            return jnp.zeros(dims)
        return self.arrays[len(self.shapes) - 1]


@partial(jax.jit, static_argnames=("stride", "padding"))
def _convolve(x: Any, w: Any, scale: Any, bias: Any, *, stride: int, padding: str) -> Any:
    """Convolution, batch normalization, ReLU; f32[B, H, W, C]."""
    x = jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean((x - mean) ** 2, axis=(0, 1, 2))
    return jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-3) * scale + bias)


def _conv(
    p: _Parameters, x: Any, out: int, kh: int, kw: int, stride: int = 1, padding: str = "SAME"
) -> Any:
    w = p(kh, kw, x.shape[-1], out)
    return _convolve(x, w, p(out), p(out), stride=stride, padding=padding)


def _pool(x: Any, size: int, stride: int, kind: str = "max", padding: str = "SAME") -> Any:
    window, steps = (1, size, size, 1), (1, stride, stride, 1)
    if kind == "max":
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, padding)
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, padding) / size**2


def _inception_a(p: _Parameters, x: Any, pool: int) -> Any:
    a = _conv(p, x, 64, 1, 1)
    b = _conv(p, _conv(p, x, 48, 1, 1), 64, 5, 5)
    c = _conv(p, _conv(p, _conv(p, x, 64, 1, 1), 96, 3, 3), 96, 3, 3)
    d = _conv(p, _pool(x, 3, 1, "mean"), pool, 1, 1)
    return jnp.concatenate([a, b, c, d], axis=-1)


def _reduction_a(p: _Parameters, x: Any) -> Any:
    a = _conv(p, x, 384, 3, 3, 2, "VALID")
    b = _conv(p, _conv(p, _conv(p, x, 64, 1, 1), 96, 3, 3), 96, 3, 3, 2, "VALID")
    return jnp.concatenate([a, b, _pool(x, 3, 2, padding="VALID")], axis=-1)


def _inception_b(p: _Parameters, x: Any, width: int) -> Any:
    a = _conv(p, x, 192, 1, 1)
    b = _conv(p, _conv(p, _conv(p, x, width, 1, 1), width, 1, 7), 192, 7, 1)
    c = _conv(p, _conv(p, _conv(p, x, width, 1, 1), width, 7, 1), width, 1, 7)
    c = _conv(p, _conv(p, c, width, 7, 1), 192, 1, 7)
    d = _conv(p, _pool(x, 3, 1, "mean"), 192, 1, 1)
    return jnp.concatenate([a, b, c, d], axis=-1)


def _reduction_b(p: _Parameters, x: Any) -> Any:
    a = _conv(p, _conv(p, x, 192, 1, 1), 320, 3, 3, 2, "VALID")
    b = _conv(p, _conv(p, _conv(p, x, 192, 1, 1), 192, 1, 7), 192, 7, 1)
    b = _conv(p, b, 192, 3, 3, 2, "VALID")
    return jnp.concatenate([a, b, _pool(x, 3, 2, padding="VALID")], axis=-1)


def _inception_c(p: _Parameters, x: Any) -> Any:
    a = _conv(p, x, 320, 1, 1)
    b = _conv(p, x, 384, 1, 1)
    c = _conv(p, _conv(p, x, 448, 1, 1), 384, 3, 3)
    parts = [a, _conv(p, b, 384, 1, 3), _conv(p, b, 384, 3, 1)]
    parts += [_conv(p, c, 384, 1, 3), _conv(p, c, 384, 3, 1)]
    parts.append(_conv(p, _pool(x, 3, 1, "mean"), 192, 1, 1))
    return jnp.concatenate(parts, axis=-1)


def _inception_logits(p: _Parameters, x: Any) -> Any:
    with jax.named_scope("layer0"):
        x = _conv(p, _conv(p, x, 32, 3, 3, 2, "VALID"), 32, 3, 3, 1, "VALID")
        x = _pool(_conv(p, x, 64, 3, 3), 3, 2, padding="VALID")
        x = _conv(p, _conv(p, x, 80, 1, 1), 192, 3, 3, 1, "VALID")
        x = _pool(x, 3, 2, padding="VALID")
    blocks: list[Any] = [
        *(partial(_inception_a, pool=pool) for pool in (32, 64, 64)), _reduction_a,
        *(partial(_inception_b, width=width) for width in (128, 160, 160, 192)), _reduction_b,
        _inception_c, _inception_c,
    ]  # fmt: skip
    for number, block in enumerate(blocks, start=1):
        with jax.named_scope(f"layer{number}"):
            x = block(p, x)
    with jax.named_scope("layer12"):
        return jnp.mean(x, axis=(1, 2)) @ p(x.shape[-1], 1000)


def inception(batch: int = 64) -> Build:
    """Inception-v3 (Szegedy et al. 2016) on 299 x 299 images."""
    return _image_model(_inception_logits, batch, 299)


def _image_model(logits: Any, batch: int, size: int) -> Build:
    def loss(params: Any, inputs: Any) -> Any:
        images, labels = inputs
        return cross_entropy(logits(_Parameters(params), images), labels)

    def build() -> Any:
        images, labels = shape(batch, size, size, 3), shape(batch, dtype=jnp.int32)
        collected = _Parameters()
        jax.eval_shape(lambda x: logits(collected, x), images)
        return loss, collected.shapes, (images, labels)

    return build


_CELL = (
    (0, 1, "mean"), (0, 0, "conv3"), (1, 2, "sep3"), (2, 3, "sep5"), (1, 4, "max"),
)  # fmt: skip
"""An AmoebaNet-like cell: five combinations of (state, state, operation on the first)."""


def _separable(p: _Parameters, x: Any, out: int, size: int) -> Any:
    return _conv(p, _conv(p, _conv(p, x, out, size, 1), out, 1, size), out, 1, 1)


def _operate(p: _Parameters, x: Any, out: int, kind: str) -> Any:
    if kind == "mean" or kind == "max":
        return _pool(x, 3, 1, kind)
    if kind == "conv3":
        return _conv(p, x, out, 3, 3)
    return _separable(p, x, out, 3 if kind == "sep3" else 5)


def _cell(p: _Parameters, before: Any, x: Any, out: int, stride: int) -> Any:
    if before.shape[1] != x.shape[1]:
        before = _pool(before, 2, before.shape[1] // x.shape[1])
    states = [_conv(p, before, out, 1, 1), _conv(p, x, out, 1, 1)]
    for first, second, kind in _CELL:
        states.append(_operate(p, states[first], out, kind) + states[second])
    joined = jnp.concatenate(states[2:], axis=-1)
    return _pool(joined, 2, stride) if stride > 1 else joined


def _amoebanet_logits(p: _Parameters, x: Any) -> Any:
    with jax.named_scope("layer0"):
        x = before = _conv(p, x, 64, 3, 3, 2)
    width = 64
    for number in range(1, 19):
        reduction = number in (2, 4, 10, 16)
        width = width * 2 if number in (4, 10, 16) else width
        with jax.named_scope(f"layer{number}"):
            before, x = x, _cell(p, before, x, width, 2 if reduction else 1)
    with jax.named_scope("layer18"):
        return jnp.mean(x, axis=(1, 2)) @ p(x.shape[-1], 1000)


def amoebanet(batch: int = 32) -> Build:
    """A network of 18 AmoebaNet-like cells (after Real et al. 2019) on 224 x 224 images."""
    return _image_model(_amoebanet_logits, batch, 224)


@partial(jax.jit, static_argnames=("dilation",))
def _dilated(x: Any, w: Any, gate: Any, out: Any, skip: Any, *, dilation: int) -> tuple[Any, Any]:
    """One gated residual block on f32[B, T, C]."""
    padded = jnp.pad(x, ((0, 0), (dilation, 0), (0, 0)))
    past = padded[:, : x.shape[1]]
    filtered = jnp.tanh(past @ w[0] + x @ w[1])
    gated = jax.nn.sigmoid(past @ gate[0] + x @ gate[1])
    hidden = filtered * gated
    return x + hidden @ out, hidden @ skip


def wavenet(stacks: int, layers: int, batch: int = 8, steps: int = 8192, width: int = 256) -> Build:
    """WaveNet (van den Oord et al. 2016): `stacks` stacks of `layers` dilated blocks."""

    def loss(params: Any, inputs: Any) -> Any:
        tokens, labels = inputs
        with jax.named_scope("layer0"):
            x = params["embedding"][tokens]
        total = jnp.zeros((batch, steps, width))
        for number, block in enumerate(params["blocks"]):
            with jax.named_scope(f"layer{number}"):
                x, skip = _dilated(x, *block, dilation=2 ** (number % layers % 10))
                total += skip
        with jax.named_scope(f"layer{stacks * layers - 1}"):
            return cross_entropy(jax.nn.relu(total) @ params["out"], labels)

    def build() -> Any:
        block = (
            [shape(width, width)] * 2, [shape(width, width)] * 2, shape(width, width),
            shape(width, width),
        )  # fmt: skip
        params = {
            "embedding": shape(256, width), "blocks": [block] * (stacks * layers),
            "out": shape(width, 256),
        }  # fmt: skip
        tokens = shape(batch, steps, dtype=jnp.int32)
        return loss, params, (tokens, tokens)

    return build
