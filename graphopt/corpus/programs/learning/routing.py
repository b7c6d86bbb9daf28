"""Mixtures of experts, and message passing on graphs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, layer_norm, mlp

EXPERTS = Family("mixture-of-experts")
GRAPHS = Family("graph-network")
FAMILIES = (EXPERTS, GRAPHS)


def _expert_params(draws: Draws, experts: int, width: int) -> Tree:
    return {
        "gate": draws.dense(width, experts),
        "up": draws.normal(experts, width, 2 * width, scale=width**-0.5),
        "down": draws.normal(experts, 2 * width, width, scale=(2 * width) ** -0.5),
    }


def _switch(params: Tree, x: Array, capacity: int) -> tuple[Array, Array]:
    """Top-1 routing of f32[T, D] with limited capacity; returns the output and the balance loss."""
    chances = jax.nn.softmax(x @ params["gate"])
    chosen = jax.nn.one_hot(jnp.argmax(chances, axis=-1), chances.shape[-1])
    slot = jnp.cumsum(chosen, axis=0) * chosen
    kept = chosen * (slot <= capacity)
    seat = jax.nn.one_hot((jnp.sum(slot * kept, axis=-1) - 1).astype(jnp.int32), capacity)
    dispatch = kept[:, :, None] * seat[:, None, :]
    boxes = jnp.einsum("td,tec->ecd", x, dispatch)
    hidden = jax.nn.relu(jnp.einsum("ecd,edh->ech", boxes, params["up"]))
    outputs = jnp.einsum("ech,ehd->ecd", hidden, params["down"])
    top = jnp.sum(chances * kept, axis=-1)
    balance = jnp.sum(jnp.mean(chosen, axis=0) * jnp.mean(chances, axis=0)) * chances.shape[-1]
    return x + top[:, None] * jnp.einsum("ecd,tec->td", outputs, dispatch), balance


@EXPERTS.program("switch_forward", "top-1 routing of f32[512,32] to eight experts with capacity 96")
def _switch_forward() -> Built:
    draws = Draws(0)
    params = _expert_params(draws, 8, 32)
    return lambda p, x: _switch(p, x, 96), (params, draws.normal(512, 32))


@EXPERTS.program("switch_grad", "gradient of two switch layers with a balance loss", gradient=True)
def _switch_grad() -> Built:
    draws = Draws(1)
    layers = [_expert_params(draws, 4, 32) for _ in range(2)]

    def loss(layers: Tree, x: Array) -> Tree:
        total = jnp.float32(0.0)
        for params in layers:
            x, balance = _switch(params, layer_norm(x), 40)
            total = total + 0.01 * balance
        return jnp.mean(x**2) + total

    return jax.value_and_grad(loss), (layers, draws.normal(96, 32))


@EXPERTS.program("top2_gather", "top-2 of six experts by gathering their weights, f32[64,24]")
def _top2_gather() -> Built:
    draws = Draws(2)

    def run(params: Tree, x: Array) -> Array:
        scores, chosen = lax.top_k(x @ params["gate"], 2)
        weights = jax.nn.softmax(scores)
        hidden = jnp.einsum("td,tkdh->tkh", x, params["up"][chosen])
        outputs = jnp.einsum("tkh,tkhd->tkd", jax.nn.silu(hidden), params["down"][chosen])
        return jnp.einsum("tk,tkd->td", weights, outputs)

    return run, (_expert_params(draws, 6, 24), draws.normal(64, 24))


@EXPERTS.program(
    "soft_moe_grad", "soft mixture of experts on f32[2,64,32]: gradient", gradient=True
)
def _soft_moe_grad() -> Built:
    draws = Draws(3)
    params = {**_expert_params(draws, 4, 32), "slots": draws.dense(32, 16)}

    def loss(params: Tree, x: Array) -> Array:
        scores = layer_norm(x) @ params["slots"]
        boxes = jnp.einsum("btd,bts->bsd", x, jax.nn.softmax(scores, axis=1))
        boxes = boxes.reshape(x.shape[0], 4, 4, 32)
        hidden = jax.nn.gelu(jnp.einsum("becd,edh->bech", boxes, params["up"]))
        outputs = jnp.einsum("bech,ehd->becd", hidden, params["down"]).reshape(x.shape[0], 16, 32)
        return jnp.mean((x + jnp.einsum("bsd,bts->btd", outputs, jax.nn.softmax(scores))) ** 2)

    return jax.value_and_grad(loss), (params, draws.normal(2, 64, 32))


@EXPERTS.program(
    "expert_choice_scan", "experts pick their tokens one after another, f32[512,32]", loops=True
)
def _expert_choice_scan() -> Built:
    draws = Draws(4)

    def run(params: Tree, x: Array) -> Array:
        chances = jax.nn.softmax(x @ params["gate"]).T

        def expert(total: Array, now: Tree) -> tuple[Array, None]:
            chance, up, down = now
            weight, tokens = lax.top_k(chance, 96)
            out = jax.nn.relu(x[tokens] @ up) @ down
            return total.at[tokens].add(weight[:, None] * out), None

        return lax.scan(expert, x, (chances, params["up"], params["down"]))[0]

    return run, (_expert_params(draws, 6, 32), draws.normal(512, 32))


def _random_graph(draws: Draws, nodes: int, edges: int, width: int) -> Tree:
    """A ``jraph.GraphsTuple`` of two graphs with random edges."""
    half = nodes // 2
    offset = np.repeat(np.array([0, half], np.int32), edges // 2)
    return jraph.GraphsTuple(
        nodes=draws.normal(nodes, width),
        edges=draws.normal(edges, width),
        senders=draws.integers(half, edges) + offset,
        receivers=draws.integers(half, edges) + offset,
        globals=draws.normal(2, width),
        n_node=np.array([half, nodes - half], np.int32),
        n_edge=np.array([edges // 2, edges // 2], np.int32),
    )


def _graphnet(layers: Tree, graph: Any) -> Any:
    for params in layers:
        network = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g, p=params: mlp(
                p[0], jnp.concatenate([e, s, r, g], -1)
            ),
            update_node_fn=lambda n, s, r, g, p=params: mlp(
                p[1], jnp.concatenate([n, s, r, g], -1)
            ),
            update_global_fn=lambda n, e, g, p=params: mlp(p[2], jnp.concatenate([n, e, g], -1)),
        )
        graph = network(graph)
    return graph


def _graphnet_params(draws: Draws, count: int) -> Tree:
    shapes = ((64, 32, 16), (64, 32, 16), (48, 32, 16))
    return [[draws.layers(*widths) for widths in shapes] for _ in range(count)]


@GRAPHS.program("graphnet_forward", "two jraph graph-network layers, 256 nodes, 1024 edges")
def _graphnet_forward() -> Built:
    draws = Draws(5)

    def run(layers: Tree, graph: Any) -> Any:
        out = _graphnet(layers, graph)
        return out.nodes, out.globals

    return run, (_graphnet_params(draws, 2), _random_graph(draws, 256, 1024, 16))


@GRAPHS.program(
    "graphnet_grad", "one jraph graph-network layer: gradient, 48 nodes, 160 edges", gradient=True
)
def _graphnet_grad() -> Built:
    draws = Draws(6)
    graph = _random_graph(draws, 48, 160, 16)

    def loss(layers: Tree, nodes: Array, edges: Array, shared: Array, ends: Tree) -> Tree:
        made = graph._replace(
            nodes=nodes, edges=edges, globals=shared, senders=ends[0], receivers=ends[1]
        )
        return jnp.mean(_graphnet(layers, made).globals ** 2)

    args = (graph.nodes, graph.edges, graph.globals, (graph.senders, graph.receivers))
    return jax.value_and_grad(loss), (_graphnet_params(draws, 1), *args)


def _edges(draws: Draws, nodes: int, edges: int) -> Tree:
    return draws.integers(nodes, edges), draws.integers(nodes, edges)


@GRAPHS.program(
    "gcn_grad",
    "two graph convolutions with degree normalisation: gradient, 1000 nodes",
    gradient=True,
)
def _gcn_grad() -> Built:
    draws = Draws(7)
    layers = draws.layers(32, 32, 8)

    def loss(layers: Tree, x: Array, senders: Array, receivers: Array, labels: Array) -> Array:
        count = x.shape[0]
        ones = jnp.ones(senders.shape)
        out_degree = 1.0 + jax.ops.segment_sum(ones, senders, count)
        in_degree = 1.0 + jax.ops.segment_sum(ones, receivers, count)
        for depth, (weights, bias) in enumerate(layers):
            sent = (x @ weights) * lax.rsqrt(out_degree)[:, None]
            mixed = jax.ops.segment_sum(sent[senders], receivers, count) + sent
            x = mixed * lax.rsqrt(in_degree)[:, None] + bias
            x = jax.nn.relu(x) if depth == 0 else x
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=1))

    args = (draws.normal(1000, 32), *_edges(draws, 1000, 4000), draws.integers(8, 1000))
    return jax.value_and_grad(loss), (layers, *args)


@GRAPHS.program("gat_forward", "two graph attention layers with four heads, 512 nodes, 2048 edges")
def _gat_forward() -> Built:
    draws = Draws(8)
    layers = [(draws.dense(32, 32), draws.normal(2, 4, 8, scale=0.3)) for _ in range(2)]

    def run(layers: Tree, x: Array, senders: Array, receivers: Array) -> Array:
        count = x.shape[0]
        for weights, score in layers:
            heads = (x @ weights).reshape(count, 4, 8)
            left, right = jnp.sum(heads * score[0], -1), jnp.sum(heads * score[1], -1)
            logits = jax.nn.leaky_relu(left[senders] + right[receivers], 0.2)
            top = jax.ops.segment_max(logits, receivers, count)
            weight = jnp.exp(logits - top[receivers])
            total = jax.ops.segment_sum(weight, receivers, count)
            mixed = jax.ops.segment_sum(weight[..., None] * heads[senders], receivers, count)
            x = jax.nn.elu((mixed / (total[..., None] + 1e-6)).reshape(count, 32))
        return x

    return run, (layers, draws.normal(512, 32), *_edges(draws, 512, 2048))


@GRAPHS.program(
    "gated_graph_grad",
    "four rounds of message passing with a GRU update: gradient, 80 nodes",
    gradient=True,
    loops=True,
)
def _gated_graph_grad() -> Built:
    draws = Draws(9)
    params = {
        "message": draws.dense(24, 24),
        "gates": draws.dense(48, 48),
        "fresh": draws.dense(48, 24),
    }

    def loss(params: Tree, x: Array, senders: Array, receivers: Array) -> Array:
        def step(state: Array, _: None) -> tuple[Array, None]:
            sent = (state @ params["message"])[senders]
            inbox = jax.ops.segment_sum(sent, receivers, state.shape[0])
            both = jnp.concatenate([state, inbox], axis=-1)
            reset, update = jnp.split(jax.nn.sigmoid(both @ params["gates"]), 2, axis=-1)
            fresh = jnp.tanh(jnp.concatenate([reset * state, inbox], axis=-1) @ params["fresh"])
            return (1.0 - update) * state + update * fresh, None

        return jnp.mean(lax.scan(step, x, length=4)[0] ** 2)

    return jax.value_and_grad(loss), (params, draws.normal(80, 24), *_edges(draws, 80, 240))


@GRAPHS.program(
    "continuous_filter_forces",
    "energy and forces of 40 atoms by continuous filters, 400 pairs",
    gradient=True,
)
def _continuous_filter_forces() -> Built:
    draws = Draws(10)
    params = {
        "filter": draws.layers(16, 32, 24),
        "atom": draws.layers(24, 24, 1),
        "embed": draws.normal(24),
    }
    senders = np.repeat(np.arange(40, dtype=np.int32), 10)
    receivers = (senders + np.tile(np.arange(1, 11, dtype=np.int32), 40)) % 40

    def energy(place: Array, params: Tree, senders: Array, receivers: Array) -> Array:
        gap = place[senders] - place[receivers]
        distance = jnp.sqrt(jnp.sum(gap**2, axis=-1) + 1e-3)
        basis = jnp.exp(-4.0 * (distance[:, None] - jnp.linspace(0.0, 4.0, 16)) ** 2)
        cutoff = 0.5 * (jnp.cos(jnp.pi * jnp.minimum(distance, 4.0) / 4.0) + 1.0)
        weights = mlp(params["filter"], basis, jax.nn.softplus) * cutoff[:, None]
        x = jnp.broadcast_to(params["embed"], (place.shape[0], 24))
        for _ in range(2):
            x = x + jax.ops.segment_sum(x[senders] * weights, receivers, place.shape[0])
        return jnp.sum(mlp(params["atom"], jnp.tanh(x), jax.nn.softplus))

    return jax.value_and_grad(energy), (draws.normal(40, 3), params, senders, receivers)


@GRAPHS.program("edge_conv_knn", "dynamic edge convolution over the 8 nearest of 128 points")
def _edge_conv_knn() -> Built:
    draws = Draws(11)

    def run(layers: Tree, points: Array) -> Array:
        x = points
        for params in layers:
            square = jnp.sum(x**2, axis=-1)
            distance = square[:, None] + square[None] - 2.0 * (x @ x.T)
            near = lax.top_k(-distance, 8)[1]
            gap = x[near] - x[:, None]
            own = jnp.broadcast_to(x[:, None], gap.shape)
            x = jnp.max(mlp(params, jnp.concatenate([own, gap], axis=-1)), axis=1)
        return jnp.max(x, axis=0)

    return run, ([draws.layers(6, 24, 16)], draws.normal(128, 3))


@GRAPHS.program(
    "label_propagation", "30 rounds of page rank and label spreading, 300 nodes", loops=True
)
def _label_propagation() -> Built:
    draws = Draws(12)

    def run(labels: Array, senders: Array, receivers: Array) -> Tree:
        count = labels.shape[0]
        degree = jnp.maximum(jax.ops.segment_sum(jnp.ones(senders.shape), senders, count), 1.0)

        def step(_: Array, carry: Tree) -> Tree:
            rank, spread = carry
            flow = jax.ops.segment_sum((rank / degree)[senders], receivers, count)
            moved = jax.ops.segment_sum(spread[senders], receivers, count)
            moved = moved / (jnp.sum(moved, axis=-1, keepdims=True) + 1e-6)
            return 0.15 / count + 0.85 * flow, 0.2 * labels + 0.8 * moved

        return lax.fori_loop(0, 30, step, (jnp.full(count, 1.0 / count), labels))

    labels = np.eye(4, dtype=np.float32)[draws.integers(4, 300)]
    return run, (labels, *_edges(draws, 300, 1200))
