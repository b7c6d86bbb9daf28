"""Realistic workloads that each run for roughly 0.1 to 30 ms on a CPU core."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.program import Built, ProgramSet

DEMO = ProgramSet()

Params = dict[str, Array]


def _on_device(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn every numpy leaf into a jax array, so that no call pays for a transfer."""
    placed: tuple[Any, ...] = jax.tree.map(jnp.asarray, args)
    return placed


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Any:
    """Draw f32[*shape] from a normal distribution of standard deviation ``scale``."""
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    """Normalize f32[..., D] over its last axis, with f32[D] scale and bias."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale + bias


def _attention(params: Params, x: Array, heads: int) -> Array:
    """Apply causal multi-head self-attention to f32[B, T, D]."""
    batch, steps, width = x.shape
    qkv = (x @ params["qkv"]).reshape(batch, steps, 3, heads, width // heads)
    query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(width // heads)
    causal = jnp.tril(jnp.ones((steps, steps), dtype=bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    return mixed.reshape(batch, steps, width) @ params["out"]


def _transformer_loss(params: Params, x: Array, target: Array) -> Array:
    """Return the f32[] mean squared error of a pre-norm block on f32[B, T, D]."""
    x = x + _attention(params, _layer_norm(x, params["scale1"], params["bias1"]), heads=4)
    hidden = _layer_norm(x, params["scale2"], params["bias2"]) @ params["up"]
    x = x + jax.nn.gelu(hidden) @ params["down"]
    return jnp.mean((x - target) ** 2)


@DEMO.register(
    "transformer_block",
    family="transformer",
    description="loss and parameter gradients of a pre-norm block, f32[4,64,128], 4 heads",
)
def _transformer_block() -> Built:
    rng = np.random.default_rng(0)
    width = 128
    params = {
        "qkv": _normal(rng, width, 3 * width, scale=width**-0.5),
        "out": _normal(rng, width, width, scale=width**-0.5),
        "up": _normal(rng, width, 4 * width, scale=width**-0.5),
        "down": _normal(rng, 4 * width, width, scale=0.5 * width**-0.5),
        "scale1": np.ones(width, np.float32),
        "bias1": np.zeros(width, np.float32),
        "scale2": np.ones(width, np.float32),
        "bias2": np.zeros(width, np.float32),
    }
    x, target = _normal(rng, 4, 64, width), _normal(rng, 4, 64, width)
    return jax.value_and_grad(_transformer_loss), _on_device((params, x, target))


@DEMO.register(
    "layernorm",
    family="normalization",
    description="layer normalization of f32[2048,768] with a scale and a bias",
)
def _layernorm() -> Built:
    rng = np.random.default_rng(0)
    x = 3.0 + _normal(rng, 2048, 768)
    scale, bias = 1.0 + _normal(rng, 768, scale=0.1), _normal(rng, 768, scale=0.1)
    return _layer_norm, _on_device((x, scale, bias))


def _adam_update(
    step: Array, params: Params, grads: Params, mean: Params, square: Params
) -> tuple[Params, Params, Params]:
    """Return new parameters and moments; ``step`` is i32[], leaves are f32 of equal shapes."""
    decay1, decay2, rate, epsilon = 0.9, 0.999, 1e-3, 1e-8
    count = step.astype(jnp.float32) + 1.0
    scale1, scale2 = 1.0 / (1.0 - decay1**count), 1.0 / (1.0 - decay2**count)
    mean = jax.tree.map(lambda m, g: decay1 * m + (1.0 - decay1) * g, mean, grads)
    square = jax.tree.map(lambda s, g: decay2 * s + (1.0 - decay2) * g * g, square, grads)
    params = jax.tree.map(
        lambda p, m, s: p - rate * (m * scale1) / (jnp.sqrt(s * scale2) + epsilon),
        params,
        mean,
        square,
    )
    return params, mean, square


@DEMO.register(
    "adam_step",
    family="optimizer",
    description="one Adam update of four f32[1000,1000] parameters, without donation",
)
def _adam_step() -> Built:
    rng = np.random.default_rng(0)

    def tree(draw: Callable[[], Any]) -> dict[str, Any]:
        return {name: draw() for name in ("embed", "hidden", "project", "readout")}

    params = tree(lambda: _normal(rng, 1000, 1000))
    grads = tree(lambda: _normal(rng, 1000, 1000))
    mean = tree(lambda: _normal(rng, 1000, 1000, scale=0.1))
    square = tree(lambda: _normal(rng, 1000, 1000) ** 2)
    return _adam_update, _on_device((np.int32(10), params, grads, mean, square))


def _heat(field: Array, rate: Array) -> Array:
    """Advance f32[N, M] by four explicit steps with a zero boundary; ``rate`` is f32[]."""
    for _ in range(4):
        padded = jnp.pad(field, 1)
        vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
        horizontal = padded[1:-1, :-2] + padded[1:-1, 2:]
        field = field + rate * (vertical + horizontal - 4.0 * field)
    return field


@DEMO.register(
    "heat_stencil",
    family="stencil",
    description="four explicit steps of the heat equation, 5-point stencil on f32[1024,1024]",
)
def _heat_stencil() -> Built:
    rng = np.random.default_rng(0)
    return _heat, _on_device((_normal(rng, 1024, 1024), np.float32(0.2)))


def _cartpole_dynamics(state: Array, action: Array) -> Array:
    """Return the next f32[4] state (position, velocity, angle, spin); ``action`` is bool[]."""
    gravity, pole_mass, total_mass, half_length, period = 9.8, 0.1, 1.1, 0.5, 0.02
    _, velocity, angle, spin = state
    force = jnp.where(action, 10.0, -10.0)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (force + pole_mass * half_length * spin**2 * sine) / total_mass
    spin_rate = (gravity * sine - cosine * push) / (
        half_length * (4.0 / 3.0 - pole_mass * cosine**2 / total_mass)
    )
    acceleration = push - pole_mass * half_length * spin_rate * cosine / total_mass
    change = jnp.stack([velocity, acceleration, spin, spin_rate])
    return state + period * change


def _cartpole(seed: Array) -> tuple[Array, Array, Array]:
    """Roll out 200 random actions from a u32[] seed; return f32[4], i32[] and f32[200,4]."""

    def step(
        carry: tuple[Array, Array, Array], _: None
    ) -> tuple[tuple[Array, Array, Array], Array]:
        state, key, episodes = carry
        key, action_key, reset_key = jax.random.split(key, 3)
        state = _cartpole_dynamics(state, jax.random.bernoulli(action_key))
        done = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > math.radians(12.0))
        fresh = jax.random.uniform(reset_key, (4,), minval=-0.05, maxval=0.05)
        carry = (jnp.where(done, fresh, state), key, episodes + done.astype(jnp.int32))
        return carry, state

    start = (jnp.zeros(4, jnp.float32), jax.random.key(seed), jnp.int32(0))
    (state, _, episodes), states = lax.scan(step, start, length=200)
    return state, episodes, states


@DEMO.register(
    "cartpole_rollout",
    family="simulation",
    description="200 steps of one cart-pole environment under random actions, state f32[4]",
)
def _cartpole_rollout() -> Built:
    return _cartpole, _on_device((np.uint32(0),))


def _lstm_forward(params: Params, inputs: Array) -> tuple[Array, Array]:
    """Run an LSTM over f32[T, B, I]; return all f32[T, B, H] outputs and the f32[B, H] cell."""
    width = params["recurrent"].shape[0]
    zeros = jnp.zeros((inputs.shape[1], width), inputs.dtype)

    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        hidden, cell = carry
        gates = x @ params["input"] + hidden @ params["recurrent"] + params["bias"]
        update, forget, candidate, output = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(update) * jnp.tanh(candidate)
        hidden = jax.nn.sigmoid(output) * jnp.tanh(cell)
        return (hidden, cell), hidden

    (_, cell), outputs = lax.scan(step, (zeros, zeros), inputs)
    return outputs, cell


@DEMO.register(
    "lstm",
    family="recurrent",
    description="LSTM forward over 64 steps of f32[8,64] with a hidden state f32[8,64]",
)
def _lstm() -> Built:
    rng = np.random.default_rng(0)
    params = {
        "input": _normal(rng, 64, 256, scale=0.125),
        "recurrent": _normal(rng, 64, 256, scale=0.125),
        "bias": _normal(rng, 256, scale=0.1),
    }
    return _lstm_forward, _on_device((params, _normal(rng, 64, 8, 64)))


def _linoid(x: Array) -> Array:
    """Return ``x / (1 - exp(-x))`` with its limit at zero, where the quotient loses accuracy."""
    near = jnp.abs(x) < 1e-3
    safe = jnp.where(near, 1.0, x)
    return jnp.where(near, 1.0 + 0.5 * x, -safe / jnp.expm1(-safe))


def _neuron_slope(volt: Array, gates: Array, current: Array) -> tuple[Array, Array]:
    """Return the rates of f32[C] membrane voltages (mV) and of f32[3, C] gates (m, h, n)."""
    m, h, n = gates
    opening = jnp.stack(
        [
            _linoid((volt + 40.0) / 10.0),
            0.07 * jnp.exp(-(volt + 65.0) / 20.0),
            0.1 * _linoid((volt + 55.0) / 10.0),
        ]
    )
    closing = jnp.stack(
        [
            4.0 * jnp.exp(-(volt + 65.0) / 18.0),
            jax.nn.sigmoid((volt + 35.0) / 10.0),
            0.125 * jnp.exp(-(volt + 65.0) / 80.0),
        ]
    )
    sodium = 120.0 * m**3 * h * (volt - 50.0)
    potassium = 36.0 * n**4 * (volt + 77.0)
    leak = 0.3 * (volt + 54.4)
    sealed = jnp.pad(volt, 1, mode="edge")
    axial = 2.0 * (sealed[:-2] - 2.0 * volt + sealed[2:])
    return current + axial - sodium - potassium - leak, opening * (1.0 - gates) - closing * gates


def _neuron(volt: Array, gates: Array, current: Array) -> tuple[Array, Array, Array]:
    """Take 1000 Euler steps of 0.01 ms from f32[C], f32[3, C]; return both and f32[1000]."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        volt, gates = carry
        volt_rate, gate_rate = _neuron_slope(volt, gates, current)
        volt = volt + 0.01 * volt_rate
        return (volt, gates + 0.01 * gate_rate), volt[0]

    (volt, gates), trace = lax.scan(step, (volt, gates), length=1000)
    return volt, gates, trace


@DEMO.register(
    "hodgkin_huxley",
    family="simulation",
    description="1000 Euler steps of an 8-compartment Hodgkin-Huxley cable, f32[8] and f32[3,8]",
)
def _hodgkin_huxley() -> Built:
    volt = np.full(8, -65.0, np.float32)
    gates = np.repeat(np.array([[0.053], [0.596], [0.318]], np.float32), 8, axis=1)
    current = np.linspace(30.0, 0.0, 8).astype(np.float32)
    return _neuron, _on_device((volt, gates, current))


def _log_posterior(weights: Array, features: Array, labels: Array) -> Array:
    """Return the f32[] log density of f32[8] weights given f32[50, 8] and f32[50] in {0, 1}."""
    logits = features @ weights
    return jnp.sum(labels * logits - jax.nn.softplus(logits)) - 0.5 * jnp.sum(weights**2)


def _hmc(seed: Array, features: Array, labels: Array) -> tuple[Array, Array]:
    """Draw 50 samples by 10 leapfrog steps each; return f32[50, 8] and the f32[] acceptance."""
    size = 0.3

    def log_density(weights: Array) -> Array:
        return _log_posterior(weights, features, labels)

    def leapfrog(_: Array, point: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, momentum = point
        momentum = momentum + 0.5 * size * jax.grad(log_density)(weights)
        weights = weights + size * momentum
        return weights, momentum + 0.5 * size * jax.grad(log_density)(weights)

    def sample(weights: Array, key: Array) -> tuple[Array, tuple[Array, Array]]:
        momentum_key, accept_key = jax.random.split(key)
        momentum = jax.random.normal(momentum_key, weights.shape)
        proposal, final = lax.fori_loop(0, 10, leapfrog, (weights, momentum))
        gain = log_density(proposal) - log_density(weights)
        gain = gain + 0.5 * (jnp.sum(momentum**2) - jnp.sum(final**2))
        accept = jnp.log(jax.random.uniform(accept_key, minval=1e-6)) < gain
        weights = jnp.where(accept, proposal, weights)
        return weights, (weights, accept.astype(jnp.float32))

    keys = jax.random.split(jax.random.key(seed), 50)
    _, (samples, accepted) = lax.scan(sample, jnp.zeros(features.shape[1], jnp.float32), keys)
    return samples, jnp.mean(accepted)


@DEMO.register(
    "hmc_chain",
    family="sampling",
    description="Hamiltonian Monte Carlo on a logistic regression over f32[50,8], 50 samples",
)
def _hmc_chain() -> Built:
    rng = np.random.default_rng(0)
    features = _normal(rng, 50, 8)
    labels = (features @ _normal(rng, 8) + _normal(rng, 50) > 0).astype(np.float32)
    return _hmc, _on_device((np.uint32(0), features, labels))


def _many_carries_loss(start: tuple[Array, ...], drive: Array) -> Array:
    """Return the f32[] mean energy of a ring of f32[] cells driven by f32[T]."""

    def step(cells: tuple[Array, ...], push: Array) -> tuple[tuple[Array, ...], Array]:
        ring = len(cells)
        moved = tuple(
            0.9 * cell + 0.1 * jnp.sin(cells[i - 1] + push) * cells[(i + 1) % ring]
            for i, cell in enumerate(cells)
        )
        energy = sum((cell * cell for cell in moved), start=jnp.float32(0.0))
        return moved, energy

    _, energies = lax.scan(step, start, drive)
    return jnp.mean(energies)


@DEMO.register(
    "scan_many_carries_grad",
    family="gradient",
    description="gradient of a 300-step scan with 32 scalar f32[] carries, driven by f32[300]",
)
def _scan_many_carries_grad() -> Built:
    rng = np.random.default_rng(0)
    start = tuple(np.float32(value) for value in rng.standard_normal(32))
    drive = _normal(rng, 300)
    return jax.value_and_grad(_many_carries_loss, argnums=(0, 1)), _on_device((start, drive))
