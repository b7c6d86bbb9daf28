"""Recurrent language models and encoder-decoders with attention."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, cross_entropy

RNN_LM = Family("rnn-lm")
SEQ2SEQ = Family("seq2seq")
FAMILIES = (RNN_LM, SEQ2SEQ)


def _lstm_params(draws: Draws, inputs: int, width: int) -> Tree:
    weights = draws.dense(inputs + width, 4 * width)
    return {"weights": weights, "bias": draws.normal(4 * width, scale=0.1)}


def _lstm_cell(params: Tree, state: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
    hidden, cell = state
    gates = jnp.concatenate([x, hidden], axis=-1) @ params["weights"] + params["bias"]
    update, forget, candidate, output = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(update) * jnp.tanh(candidate)
    return jax.nn.sigmoid(output) * jnp.tanh(cell), cell


def _zeros(layers: int, batch: int, width: int) -> Tree:
    return [(jnp.zeros((batch, width)), jnp.zeros((batch, width))) for _ in range(layers)]


def _stack(cells: Tree, states: Tree, x: Array) -> tuple[Array, Tree]:
    """One step of stacked cells; residual connections from the third on."""
    fresh = []
    for depth, (cell, state) in enumerate(zip(cells, states, strict=True)):
        state = _lstm_cell(cell, state, x)
        x = state[0] + x if depth >= 2 else state[0]
        fresh.append(state)
    return x, fresh


def _lm_params(draws: Draws, layers: int, vocabulary: int, width: int) -> Tree:
    return {
        "embed": draws.normal(vocabulary, width),
        "cells": [_lstm_params(draws, width, width) for _ in range(layers)],
        "out": draws.dense(width, vocabulary),
    }


def _lm_loss(params: Tree, tokens: Array) -> Array:
    """Mean cross entropy of predicting i32[B, T] tokens one ahead."""
    inputs = params["embed"][tokens[:, :-1]].swapaxes(0, 1)
    start = _zeros(len(params["cells"]), tokens.shape[0], inputs.shape[-1])

    def step(states: Tree, x: Array) -> tuple[Tree, Array]:
        hidden, states = _stack(params["cells"], states, x)
        return states, hidden

    hidden = lax.scan(step, start, inputs)[1]
    return cross_entropy(hidden @ params["out"], tokens[:, 1:].T)


def _lm_grad(layers: int, width: int, batch: int, steps: int) -> Built:
    draws = Draws(layers)
    params = _lm_params(draws, layers, 256, width)
    return jax.value_and_grad(_lm_loss), (params, draws.integers(256, batch, steps + 1))


@RNN_LM.program(
    "rnn_lm_2_grad",
    "2-layer LSTM language model, loss and gradient, 24 steps of i32[8]",
    gradient=True,
    loops=True,
)
def _rnn_lm_2_grad() -> Built:
    return _lm_grad(2, 96, 8, 24)


@RNN_LM.program(
    "rnn_lm_4_grad",
    "4-layer residual LSTM language model, loss and gradient, 20 steps of i32[8]",
    gradient=True,
    loops=True,
)
def _rnn_lm_4_grad() -> Built:
    return _lm_grad(4, 64, 8, 20)


@RNN_LM.program(
    "rnn_lm_8_grad",
    "8-layer residual LSTM language model, loss and gradient, 16 steps of i32[4]",
    gradient=True,
    loops=True,
)
def _rnn_lm_8_grad() -> Built:
    return _lm_grad(8, 48, 4, 16)


@RNN_LM.program(
    "rnn_lm_8_forward",
    "log-likelihood of an 8-layer LSTM language model, 32 steps of i32[4]",
    loops=True,
)
def _rnn_lm_8_forward() -> Built:
    draws = Draws(9)
    return _lm_loss, (_lm_params(draws, 8, 256, 64), draws.integers(256, 4, 33))


@RNN_LM.program(
    "rnn_lm_decode",
    "greedy decoding of 40 tokens with a 2-layer LSTM, batch 4, tied embedding",
    loops=True,
)
def _rnn_lm_decode() -> Built:
    draws = Draws(10)
    params = _lm_params(draws, 2, 128, 64)

    def decode(params: Tree, first: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Tree]:
            states, token = carry
            hidden, states = _stack(params["cells"], states, params["embed"][token])
            logits = hidden @ params["embed"].T
            token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            return (states, token), (token, jnp.max(logits, axis=-1))

        return lax.scan(step, (_zeros(2, 4, 64), first), length=40)[1]

    return decode, (params, draws.integers(128, 4))


# GNMT: a bidirectional first layer, residual LSTM stacks, additive attention in the decoder.


def _gnmt_params(draws: Draws, layers: int, vocabulary: int, width: int) -> Tree:
    return {
        "source": draws.normal(vocabulary, width),
        "target": draws.normal(vocabulary, width),
        "forward": _lstm_params(draws, width, width),
        "backward": _lstm_params(draws, width, width),
        "merge": draws.dense(2 * width, width),
        "encoder": [_lstm_params(draws, width, width) for _ in range(layers - 1)],
        "first": _lstm_params(draws, 2 * width, width),
        "decoder": [_lstm_params(draws, 2 * width, width) for _ in range(layers - 1)],
        "query": draws.dense(width, width),
        "key": draws.dense(width, width),
        "score": draws.normal(width),
        "out": draws.dense(2 * width, vocabulary),
    }


def _run(cell: Tree, xs: Array, reverse: bool = False) -> Array:
    start = _zeros(1, xs.shape[1], xs.shape[2])[0]

    def step(state: Tree, x: Array) -> tuple[Tree, Array]:
        state = _lstm_cell(cell, state, x)
        return state, state[0]

    outputs: Array = lax.scan(step, start, xs, reverse=reverse)[1]
    return outputs


def _gnmt_encode(params: Tree, source: Array) -> Tree:
    """Encode i32[B, S] as f32[S, B, D]."""
    x = params["source"][source].swapaxes(0, 1)
    both = [_run(params["forward"], x), _run(params["backward"], x, reverse=True)]
    x = jnp.concatenate(both, axis=-1) @ params["merge"]
    for cell in params["encoder"]:
        x = x + _run(cell, x)
    return x


def _attend(params: Tree, keys: Array, memory: Array, query: Array) -> Array:
    """Additive attention of f32[B, D] over f32[S, B, D]; returns the f32[B, D] context."""
    scores = jnp.tanh(keys + query @ params["query"]) @ params["score"]
    weights = jax.nn.softmax(scores, axis=0)
    return jnp.sum(weights[..., None] * memory, axis=0)


def _gnmt_step(
    params: Tree, keys: Array, memory: Array, carry: Tree, x: Array
) -> tuple[Tree, Array]:
    states, context = carry
    first = _lstm_cell(params["first"], states[0], jnp.concatenate([x, context], axis=-1))
    context = _attend(params, keys, memory, first[0])
    x, fresh = first[0], [first]
    for cell, state in zip(params["decoder"], states[1:], strict=True):
        state = _lstm_cell(cell, state, jnp.concatenate([x, context], axis=-1))
        x = x + state[0]
        fresh.append(state)
    return (fresh, context), jnp.concatenate([x, context], axis=-1) @ params["out"]


def _gnmt_loss(params: Tree, source: Array, target: Array) -> Array:
    memory = _gnmt_encode(params, source)
    keys = memory @ params["key"]
    width = memory.shape[-1]
    start = (_zeros(1 + len(params["decoder"]), source.shape[0], width), jnp.zeros_like(memory[0]))

    def step(carry: Tree, x: Array) -> tuple[Tree, Array]:
        return _gnmt_step(params, keys, memory, carry, x)

    inputs = params["target"][target[:, :-1]].swapaxes(0, 1)
    return cross_entropy(lax.scan(step, start, inputs)[1], target[:, 1:].T)


def _gnmt_inputs(seed: int, layers: int, width: int) -> Tree:
    draws = Draws(seed)
    params = _gnmt_params(draws, layers, 128, width)
    return params, draws.integers(128, 4, 14), draws.integers(128, 4, 13)


@SEQ2SEQ.program(
    "gnmt_2_grad",
    "2-layer GNMT, loss and gradient, batch 4, 14 source and 12 target steps",
    gradient=True,
    loops=True,
)
def _gnmt_2_grad() -> Built:
    return jax.value_and_grad(_gnmt_loss), _gnmt_inputs(2, 2, 64)


@SEQ2SEQ.program(
    "gnmt_4_forward", "loss of a 4-layer GNMT, batch 4, 14 source and 12 target steps", loops=True
)
def _gnmt_4_forward() -> Built:
    return _gnmt_loss, _gnmt_inputs(4, 4, 64)


@SEQ2SEQ.program(
    "gnmt_greedy_decode", "GNMT translation of i32[4,14] into 20 tokens, greedily", loops=True
)
def _gnmt_greedy_decode() -> Built:
    def decode(params: Tree, source: Array) -> Tree:
        memory = _gnmt_encode(params, source)
        keys = memory @ params["key"]
        start = (_zeros(2, source.shape[0], 64), jnp.zeros_like(memory[0]))

        def step(carry: Tree, _: None) -> tuple[Tree, Tree]:
            state, token = carry
            state, logits = _gnmt_step(params, keys, memory, state, params["target"][token])
            token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            return (state, token), (token, jax.nn.logsumexp(logits, axis=-1))

        first = jnp.zeros(source.shape[0], jnp.int32)
        return lax.scan(step, (start, first), length=20)[1]

    params, source, _ = _gnmt_inputs(5, 2, 64)
    return decode, (params, source)


@SEQ2SEQ.program(
    "pointer_network_grad",
    "pointer network that sorts f32[8,10]: loss and gradient",
    gradient=True,
    loops=True,
)
def _pointer_network_grad() -> Built:
    draws = Draws(6)
    params = {
        "embed": draws.normal(1, 48),
        "encoder": _lstm_params(draws, 48, 48),
        "decoder": _lstm_params(draws, 48, 48),
        "query": draws.dense(48, 48),
        "key": draws.dense(48, 48),
        "score": draws.normal(48),
    }

    def loss(params: Tree, values: Array) -> Array:
        order = jnp.argsort(values, axis=1).astype(jnp.int32)
        x = (values[..., None] * params["embed"][0]).swapaxes(0, 1)
        memory = _run(params["encoder"], x)
        keys = memory @ params["key"]
        picked = jnp.take_along_axis(x, order.T[..., None], axis=0)
        inputs = jnp.concatenate([jnp.zeros_like(x[:1]), picked[:-1]])
        queries = _run(params["decoder"], inputs) @ params["query"]
        scores = jnp.tanh(queries[:, None] + keys[None]) @ params["score"]
        return cross_entropy(scores.swapaxes(1, 2), order.T)

    return jax.value_and_grad(loss), (params, draws.uniform(8, 10))
