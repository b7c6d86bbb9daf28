"""Small models on which the placement policy is trained; no family of `LARGE` is among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from graphopt.corpus.placement.large import LargeModel
from graphopt.corpus.placement.shapes import Build, cross_entropy, shape


@jax.jit
def _gru(w: Any, u: Any, x: Any, h: Any) -> Any:
    a, r = jnp.split(x @ w, 3, axis=-1), jnp.split(h @ u, 3, axis=-1)
    z, reset = jax.nn.sigmoid(a[0] + r[0]), jax.nn.sigmoid(a[1] + r[1])
    return (1 - z) * h + z * jnp.tanh(a[2] + reset * r[2])


def tagger(layers: int, steps: int, width: int, batch: int) -> Build:
    """Stacked GRU with a label per step."""

    def loss(params: Any, inputs: Any) -> Any:
        xs, labels = [inputs[0][t] for t in range(steps)], inputs[1]
        for layer, (w, u) in enumerate(params["cells"]):
            h, out = jnp.zeros((batch, width)), []
            with jax.named_scope(f"layer{layer}"):
                for x in xs:
                    h = _gru(w, u, x, h)
                    out.append(h)
            xs = out
        return sum(cross_entropy(x @ params["out"], labels[t]) for t, x in enumerate(xs))

    def build() -> Any:
        cell = (shape(width, 3 * width), shape(width, 3 * width))
        params = {"cells": [cell] * layers, "out": shape(width, 4000)}
        return loss, params, (shape(steps, batch, width), shape(steps, batch, dtype=jnp.int32))

    return build


@jax.jit
def _dense(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b)


def towers(count: int, depth: int, width: int, batch: int) -> Build:
    """Several independent stacks of dense layers, compared pairwise at the end."""

    def loss(params: Any, inputs: Any) -> Any:
        ends = []
        for number, tower in enumerate(params):
            x = inputs[number]
            for depth_, (w, b) in enumerate(tower):
                with jax.named_scope(f"layer{depth_}"):
                    x = _dense(x, w, b)
            ends.append(x / jnp.linalg.norm(x, axis=1, keepdims=True))
        first, *others = ends
        return sum(jnp.mean(jax.nn.logsumexp(first @ other.T, axis=1)) for other in others)

    def build() -> Any:
        tower = [(shape(width, width), shape(width))] * depth
        return loss, [tower] * count, [shape(batch, width)] * count

    return build


def experts(layers: int, count: int, width: int, tokens: int) -> Build:
    """Residual layers of dense experts mixed by a gate."""

    def loss(params: Any, inputs: Any) -> Any:
        x = inputs
        for layer, p in enumerate(params):
            with jax.named_scope(f"layer{layer}"):
                gate = jax.nn.softmax(x @ p["gate"])
                parts = [
                    gate[:, e : e + 1] * (_dense(x, *p["up"][e]) @ p["down"][e])
                    for e in range(count)
                ]
                x = x + sum(parts)
        return jnp.mean(x**2)

    def build() -> Any:
        p = {
            "gate": shape(width, count),
            "up": [(shape(width, 2 * width), shape(2 * width))] * count,
            "down": [shape(2 * width, width)] * count,
        }
        return loss, [p] * layers, shape(tokens, width)

    return build


@jax.jit
def _conv(x: Any, w: Any) -> Any:
    return jax.nn.relu(
        jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )


def u_net(depth: int, width: int, size: int, batch: int) -> Build:
    """Down and up again, with connections across."""

    def loss(params: Any, inputs: Any) -> Any:
        x, kept = inputs, []
        for level in range(depth):
            with jax.named_scope(f"layer{level}"):
                x = _conv(_conv(x, params["down"][level][0]), params["down"][level][1])
                kept.append(x)
                x = x[:, ::2, ::2]
        for level in reversed(range(depth)):
            with jax.named_scope(f"layer{2 * depth - level - 1}"):
                x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
                x = jnp.concatenate([x[..., :width], kept[level]], axis=-1)
                x = _conv(_conv(x, params["up"][level][0]), params["up"][level][1])
        return jnp.mean(x**2)

    def build() -> Any:
        down = [
            (shape(3, 3, 3 if level == 0 else width, width), shape(3, 3, width, width))
            for level in range(depth)
        ]
        up = [(shape(3, 3, 2 * width, width), shape(3, 3, width, width))] * depth
        return loss, {"down": down, "up": up}, shape(batch, size, size, 3)

    return build


def residual(blocks: int, width: int, size: int, batch: int, branches: int) -> Build:
    """Residual blocks of parallel convolution paths (after ResNeXt)."""

    def loss(params: Any, inputs: Any) -> Any:
        x = inputs
        for number, block in enumerate(params):
            with jax.named_scope(f"layer{number}"):
                x = x + sum(_conv(_conv(x, a), b) for a, b in block)
        return jnp.mean(x**2)

    def build() -> Any:
        path = (shape(3, 3, width, width // 2), shape(3, 3, width // 2, width))
        return loss, [[path] * branches] * blocks, shape(batch, size, size, width)

    return build


def training_models() -> Iterator[LargeModel]:
    """Fifteen models on 2, 4 and 8 devices."""
    for devices in (2, 4, 8):
        yield LargeModel(f"tagger-{devices}", devices, tagger(devices, 16, 1024, 64))
        yield LargeModel(f"towers-{devices}", devices, towers(devices + 1, 12, 2048, 512))
        yield LargeModel(f"experts-{devices}", devices, experts(6, devices * 2, 1024, 2048))
        yield LargeModel(f"u-net-{devices}", devices, u_net(4, 128, 128, 8))
        yield LargeModel(f"residual-{devices}", devices, residual(10, 128, 56, 16, devices * 2))
