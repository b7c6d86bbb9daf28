"""The network: graph convolution over blocks, then one decision per block with a memory per device.

Devices are never numbered for the network: each is described by what it is (speed, free memory) and by
what has been placed on it so far (load over time, neighbours of the block). One scorer looks at each
device in the same way, so that any number of devices, of any kinds, can be chosen from.

Axis letters: K blocks, D devices, T time bins, B samples, H hidden units.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp

from graphopt.policy.placement.blocks import NODE_FEATURES, BlockGraph

HIDDEN: Final = 32
STATE_FEATURES: Final = 9
ROUNDS: Final = 2

Params = dict[str, Any]

_PRIOR: Final = (-1.0, -1.5, 0.5, 2.0, 0.5, 0.0, -1.0, 0.0, 0.0)
"""Where training starts: avoid loaded devices, stay with neighbours."""


def init(seed: int = 0) -> Params:
    """Random weights; the first policy is the prior alone."""
    keys = iter(jax.random.split(jax.random.key(seed), 8))

    def dense(rows: int, columns: int, scale: float = 1.0) -> Any:
        return scale * jax.random.normal(next(keys), (rows, columns)) / rows**0.5

    return {
        "embed": dense(NODE_FEATURES, HIDDEN),
        "own": [dense(HIDDEN, HIDDEN) for _ in range(ROUNDS)],
        "near": [dense(HIDDEN, HIDDEN) for _ in range(ROUNDS)],
        "state": dense(STATE_FEATURES + HIDDEN, HIDDEN),
        "bias": jnp.zeros(HIDDEN),
        "score": jnp.zeros((HIDDEN, 1)),
        "linear": jnp.array(_PRIOR),
    }


def arrays(graph: BlockGraph) -> dict[str, Any]:
    """A block graph as jax arrays, the form that the functions below take."""
    return {
        name: jnp.asarray(getattr(graph, name))
        for name in ("share", "memory", "traffic", "profile", "node")
    }


def embed(params: Params, graph: dict[str, Any]) -> Any:
    """f32 [K, H]: every block with its neighbourhood; neighbours weighted by traffic."""
    weight = graph["traffic"]
    weight = weight / jnp.maximum(weight.sum(axis=1, keepdims=True), 1e-6)
    hidden = jnp.tanh(graph["node"] @ params["embed"])
    for own, near in zip(params["own"], params["near"], strict=True):
        hidden = hidden + jnp.tanh(hidden @ own + (weight @ hidden) @ near)
    return hidden


@jax.jit
def sample(params: Params, graph: dict[str, Any], noise: Any, temperature: Any) -> Any:
    """Draws placements: Gumbel noise f32 [B, K, D], temperature f32 [B] -> devices i32 [B, K]."""

    def choose(scores: Any, noise: Any, _: Any) -> Any:
        return jnp.argmax(scores + noise)

    def one(noise: Any) -> Any:
        nothing = jnp.zeros(noise.shape[0], jnp.int32)
        return _decode(params, graph, choose, noise, nothing)[0]

    # Scores over temperature plus noise has its largest value where scores plus so much noise has it.
    return jax.vmap(one)(noise * temperature[:, None, None])


@jax.jit
def log_probabilities(params: Params, graph: dict[str, Any], devices: Any) -> tuple[Any, Any]:
    """Of given placements i32 [B, K]: log-probability and entropy of every decision, f32 [B, K]."""

    def follow(_: Any, __: Any, given: Any) -> Any:
        return given

    def one(placed: Any) -> Any:
        log = _decode(params, graph, follow, jnp.zeros(placed.shape), placed)[1]
        picked = jnp.take_along_axis(log, placed[:, None], axis=1)[:, 0]
        return picked, -(jnp.exp(log) * log).sum(axis=1)

    both: tuple[Any, Any] = jax.vmap(one)(devices)
    return both


def _decode(params: Params, graph: dict[str, Any], choose: Any, noise: Any, given: Any) -> Any:
    """Decides block after block; returns devices i32 [K] and log-probabilities f32 [K, D]."""
    hidden = embed(params, graph)
    blocks, devices = graph["share"].shape
    mean_load = jnp.maximum(graph["share"].mean(axis=1).sum() / devices, 1e-6)
    state = (
        jnp.zeros(devices),
        jnp.zeros(devices),
        jnp.zeros((devices, graph["profile"].shape[1])),
        jnp.zeros((blocks, devices)),
        jnp.zeros(devices),
    )
    step = partial(_step, params, choose, mean_load)
    rows = {
        "share": graph["share"], "memory": graph["memory"], "profile": graph["profile"],
        "traffic": graph["traffic"], "hidden": hidden, "noise": noise, "given": given,
        "index": jnp.arange(blocks),
    }  # fmt: skip
    return jax.lax.scan(step, state, rows)[1]


def _step(params: Params, choose: Any, mean_load: Any, state: Any, row: dict[str, Any]) -> Any:
    load, memory, busy, where, last = state
    devices = load.shape[0]
    work = row["profile"] / jnp.maximum(row["profile"].sum(), 1e-6)
    near = row["traffic"] @ where
    mean = jnp.maximum(row["share"].mean(), 1e-6)
    features = jnp.stack(
        [
            (load + row["share"]) / mean_load,
            busy @ work,
            jnp.log1p(near / mean),
            near / jnp.maximum(near.sum(), 1e-6),
            last,
            memory + row["memory"],
            row["share"] / mean,
            (load == 0).astype(jnp.float32),
            jnp.full(devices, 1.0 / devices),
        ],
        axis=1,
    )
    joined = jnp.concatenate([features, jnp.tile(row["hidden"], (devices, 1))], axis=1)
    inner = jnp.tanh(joined @ params["state"] + params["bias"])
    scores = features @ params["linear"] + (inner @ params["score"])[:, 0]
    scores = jnp.where(memory + row["memory"] > 1.0, scores - 20.0, scores)
    device = choose(scores, row["noise"], row["given"])
    here = (jnp.arange(devices) == device).astype(jnp.float32)
    state = (
        load + here * row["share"],
        memory + here * row["memory"],
        busy + here[:, None] * row["profile"],
        where.at[row["index"]].set(here),
        here,
    )
    return state, (device, jax.nn.log_softmax(scores))
