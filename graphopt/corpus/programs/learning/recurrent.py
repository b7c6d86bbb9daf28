"""Recurrent cells and state-space layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, layer_norm

RECURRENT = Family("recurrent")
STATE_SPACE = Family("state-space-layer")
FAMILIES = (RECURRENT, STATE_SPACE)


@RECURRENT.program(
    "lstm_stack_grad",
    "gradient through two linen LSTM layers, 24 steps of f32[4,48]",
    gradient=True,
    loops=True,
)
def _lstm_stack_grad() -> Built:
    draws = Draws(0)
    layers = [linen.RNN(linen.OptimizedLSTMCell(48)), linen.RNN(linen.OptimizedLSTMCell(32))]
    model = linen.Sequential([*layers, linen.Dense(1)])
    x = draws.normal(4, 24, 48)
    params = draws.parameters(model.init, jax.eval_shape(lambda: jax.random.key(0)), x)

    def loss(params: Tree, x: Array, y: Array) -> Tree:
        guess: Tree = model.apply(params, x)
        return jnp.mean((guess - y) ** 2)

    return jax.value_and_grad(loss), (params, x, draws.normal(4, 24, 1))


def _gru_params(draws: Draws, inputs: int, width: int) -> Tree:
    return {
        "input": draws.dense(inputs, 3 * width),
        "hidden": draws.dense(width, 3 * width),
        "bias": draws.normal(2, 3 * width, scale=0.1),
    }


def _gru_cell(params: Tree, hidden: Array, x: Array) -> Array:
    left = jnp.split(x @ params["input"] + params["bias"][0], 3, axis=-1)
    right = jnp.split(hidden @ params["hidden"] + params["bias"][1], 3, axis=-1)
    reset, update = jax.nn.sigmoid(left[0] + right[0]), jax.nn.sigmoid(left[1] + right[1])
    candidate = jnp.tanh(left[2] + reset * right[2])
    return (1.0 - update) * candidate + update * hidden


def _gru(params: Tree, xs: Array, reverse: bool = False) -> Array:
    """Run a GRU over f32[T, B, I]; return f32[T, B, H]."""

    def step(hidden: Array, x: Array) -> tuple[Array, Array]:
        hidden = _gru_cell(params, hidden, x)
        return hidden, hidden

    start = jnp.zeros((xs.shape[1], params["hidden"].shape[0]))
    outputs: Array = lax.scan(step, start, xs, reverse=reverse)[1]
    return outputs


@RECURRENT.program("gru_forward", "GRU over 300 steps of f32[2,32]", loops=True)
def _gru_forward() -> Built:
    draws = Draws(1)
    return _gru, (_gru_params(draws, 32, 32), draws.normal(300, 2, 32))


@RECURRENT.program(
    "gru_autoencoder_grad",
    "GRU encoder and decoder of f32[20,8,16], loss and gradient",
    gradient=True,
    loops=True,
)
def _gru_autoencoder_grad() -> Built:
    draws = Draws(2)
    params = {
        "encoder": _gru_params(draws, 16, 40),
        "decoder": _gru_params(draws, 16, 40),
        "out": draws.dense(40, 16),
    }

    def loss(params: Tree, xs: Array) -> Array:
        code = _gru(params["encoder"], xs)[-1]

        def step(carry: tuple[Array, Array], target: Array) -> tuple[Tree, Array]:
            hidden, x = carry
            hidden = _gru_cell(params["decoder"], hidden, x)
            guess = hidden @ params["out"]
            return (hidden, guess), jnp.mean((guess - target) ** 2)

        _, errors = lax.scan(step, (code, jnp.zeros_like(xs[0])), xs[::-1])
        return jnp.mean(errors)

    return jax.value_and_grad(loss), (params, draws.normal(20, 8, 16))


@RECURRENT.program(
    "bidirectional_tagger",
    "bidirectional GRU tagger with a Viterbi-free softmax, f32[80,4,32]",
    loops=True,
)
def _bidirectional_tagger() -> Built:
    draws = Draws(3)
    params = [_gru_params(draws, 32, 32), _gru_params(draws, 32, 32), draws.dense(64, 12)]

    def tag(params: Tree, xs: Array) -> Array:
        both = [_gru(params[0], xs), _gru(params[1], xs, reverse=True)]
        return jax.nn.log_softmax(jnp.concatenate(both, axis=-1) @ params[2])

    return tag, (params, draws.normal(80, 4, 32))


@RECURRENT.program(
    "peephole_lstm_norm", "layer-normalized peephole LSTM over 100 steps of f32[4,24]", loops=True
)
def _peephole_lstm_norm() -> Built:
    draws = Draws(4)
    params = {"x": draws.dense(24, 96), "h": draws.dense(24, 96), "peep": draws.normal(3, 24)}

    def run(params: Tree, xs: Array) -> Tree:
        peep = params["peep"]

        def step(carry: tuple[Array, Array], x: Array) -> tuple[Tree, Array]:
            hidden, cell = carry
            gates = layer_norm(x @ params["x"]) + layer_norm(hidden @ params["h"])
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            fresh = jax.nn.sigmoid(f + peep[0] * cell) * cell
            fresh += jax.nn.sigmoid(i + peep[1] * cell) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o + peep[2] * fresh) * jnp.tanh(layer_norm(fresh))
            return (hidden, fresh), hidden

        zeros = jnp.zeros(xs.shape[1:])
        return lax.scan(step, (zeros, zeros), xs)

    return run, (params, draws.normal(100, 4, 24))


@RECURRENT.program(
    "echo_state_ridge",
    "echo state reservoir of 96 units over 200 steps, ridge readout",
    loops=True,
)
def _echo_state_ridge() -> Built:
    draws = Draws(5)

    def fit(recurrent: Array, inputs: Array, signal: Array) -> Tree:
        def step(state: Array, u: Array) -> tuple[Array, Array]:
            state = 0.7 * state + 0.3 * jnp.tanh(recurrent @ state + inputs * u)
            return state, state

        states = lax.scan(step, jnp.zeros(96), signal[:-1])[1]
        features = jnp.concatenate([states, jnp.ones((states.shape[0], 1))], axis=1)
        gram = features.T @ features + 1.0 * jnp.eye(97)
        # Fixed gradient steps in place of a solve: no call to LAPACK.
        weights = lax.fori_loop(
            0, 30, lambda _, w: w + 0.002 * (features.T @ signal[1:] - gram @ w), jnp.zeros(97)
        )
        return weights, features @ weights - signal[1:]

    signal = np.sin(np.arange(201, dtype=np.float32) / 5.0)
    recurrent = draws.normal(96, 96, scale=0.9 / 96**0.5)
    return fit, (recurrent, draws.normal(96, scale=0.5), signal.astype(np.float32))


def _combine(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compose two steps of ``h = a * h + b``, the left one first."""
    return left[0] * right[0], right[0] * left[1] + right[1]


@STATE_SPACE.program(
    "s5_layer", "diagonal complex state-space layer by parallel prefix, f32[512,32], 16 states"
)
def _s5_layer() -> Built:
    draws = Draws(6)
    params = {
        "rate": draws.normal(16, scale=0.5),
        "angle": draws.uniform(16, high=3.0),
        "b": draws.normal(2, 32, 16, scale=0.2),
        "c": draws.normal(2, 16, 32, scale=0.2),
        "d": draws.normal(32),
    }

    def layer(params: Tree, u: Array) -> Array:
        pole = jnp.exp(lax.complex(-0.1 * jnp.exp(params["rate"]), params["angle"]))
        drive = lax.complex(u @ params["b"][0], u @ params["b"][1])
        poles = jnp.broadcast_to(pole, drive.shape)
        states = lax.associative_scan(_combine, (poles, drive))[1]
        y = states.real @ params["c"][0] - states.imag @ params["c"][1]
        return u + jax.nn.gelu(y + params["d"] * u)

    return layer, (params, draws.normal(512, 32))


def _selective(params: Tree, x: Array) -> Tree:
    """Selective state-space block on f32[T, D], the state being f32[D, N]."""
    delta = jax.nn.softplus(x @ params["delta"])
    into, out = x @ params["into"], x @ params["out"]
    decay = -jnp.exp(params["decay"])

    def step(state: Array, now: Tree) -> tuple[Array, Array]:
        x, delta, into, out = now
        state = jnp.exp(delta[:, None] * decay) * state + (delta * x)[:, None] * into
        return state, state @ out

    y = lax.scan(step, jnp.zeros(decay.shape), (x, delta, into, out))[1]
    return (y + params["skip"] * x) * jax.nn.silu(x @ params["gate"])


def _selective_params(draws: Draws) -> Tree:
    return {
        "delta": draws.dense(32, 32),
        "into": draws.dense(32, 8),
        "out": draws.dense(32, 8),
        "gate": draws.dense(32, 32),
        "decay": draws.normal(32, 8, scale=0.3),
        "skip": draws.normal(32),
    }


@STATE_SPACE.program("mamba_block", "selective state-space block over f32[512,32]", loops=True)
def _mamba_block() -> Built:
    draws = Draws(7)
    return _selective, (_selective_params(draws), draws.normal(512, 32))


@STATE_SPACE.program(
    "mamba_grad",
    "gradient through two selective state-space blocks, f32[48,32]",
    gradient=True,
    loops=True,
)
def _mamba_grad() -> Built:
    draws = Draws(8)
    blocks = [_selective_params(draws), _selective_params(draws)]

    def loss(blocks: Tree, x: Array) -> Array:
        for block in blocks:
            x = x + _selective(block, layer_norm(x))
        return jnp.mean(x**2)

    return jax.value_and_grad(loss), (blocks, draws.normal(48, 32))


@STATE_SPACE.program(
    "min_gru_grad", "minimal GRU by parallel prefix over f32[8,128,32]: gradient", gradient=True
)
def _min_gru_grad() -> Built:
    draws = Draws(9)
    params = {"gate": draws.dense(32, 32), "value": draws.dense(32, 32)}

    def loss(params: Tree, x: Array) -> Array:
        gate = jax.nn.sigmoid(x @ params["gate"])
        steps = (1.0 - gate, gate * jnp.tanh(x @ params["value"]))
        states = lax.associative_scan(_combine, steps, axis=1)[1]
        return jnp.mean((states[:, :-1] - x[:, 1:]) ** 2)

    return jax.value_and_grad(loss), (params, draws.normal(8, 128, 32))


@STATE_SPACE.program(
    "retention_chunks", "retention with decays per head, chunk by chunk, f32[4,512,16]", loops=True
)
def _retention_chunks() -> Built:
    draws = Draws(10)

    def retain(query: Array, key: Array, value: Array) -> Array:
        heads, steps, width = query.shape
        chunk = 16
        decay = 1.0 - 2.0 ** (-3.0 - jnp.arange(heads, dtype=jnp.float32))
        place = jnp.arange(chunk, dtype=jnp.float32)
        gap = place[:, None] - place[None]
        inner = jnp.where(gap >= 0, decay[:, None, None] ** jnp.maximum(gap, 0.0), 0.0)
        parts = [x.reshape(heads, -1, chunk, width).swapaxes(0, 1) for x in (query, key, value)]

        def step(state: Array, now: Tree) -> tuple[Array, Array]:
            q, k, v = now
            local = jnp.einsum("hik,hjk->hij", q, k) * inner
            past = decay[:, None, None] ** (place[:, None] + 1.0)
            out = jnp.einsum("hij,hjv->hiv", local, v) + past * jnp.einsum("hik,hkv->hiv", q, state)
            weight = decay[:, None, None] ** (chunk - 1.0 - place[:, None])
            state = decay[:, None, None] ** chunk * state
            return state + jnp.einsum("hjk,hjv->hkv", k * weight, v), out

        start = jnp.zeros((heads, width, width))
        out = lax.scan(step, start, tuple(parts))[1]
        return layer_norm(out.swapaxes(0, 1).reshape(heads, steps, width))

    return retain, tuple(draws.normal(4, 512, 16, scale=0.5) for _ in range(3))
