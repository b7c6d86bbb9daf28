"""Generative models: autoencoders, diffusion, adversarial training, flows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, conv, layer_norm, mlp

GENERATIVE = Family("generative")
DIFFUSION = Family("diffusion")
FAMILIES = (GENERATIVE, DIFFUSION)


@GENERATIVE.program(
    "vae_train_step",
    "Adam step of a variational autoencoder on f32[16,144]",
    gradient=True,
    loops=True,
)
def _vae_train_step() -> Built:
    draws = Draws(0)
    params = {"encoder": draws.layers(144, 64, 16), "decoder": draws.layers(8, 64, 144)}
    optimizer = optax.adam(1e-3)

    def loss(params: Tree, x: Array, noise: Array) -> Array:
        mean, log_scale = jnp.split(mlp(params["encoder"], x), 2, axis=-1)
        logits = mlp(params["decoder"], mean + jnp.exp(log_scale) * noise)
        error = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, x), axis=-1)
        divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_scale) - 1 - 2 * log_scale, axis=-1)
        return jnp.mean(error + divergence)

    def step(params: Tree, state: Tree, x: Array, seed: Array) -> Tree:
        noise = jax.random.normal(jax.random.key(seed), (x.shape[0], 8))
        value, grads = jax.value_and_grad(loss)(params, x, noise)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    zeros = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(optimizer.init, params)
    )
    return step, (params, zeros, draws.uniform(16, 144), np.uint32(0))


@GENERATIVE.program(
    "gan_grads", "gradients of generator and discriminator, f32[16,64] samples", gradient=True
)
def _gan_grads() -> Built:
    draws = Draws(1)
    generator, critic = draws.layers(16, 64, 64), draws.layers(64, 64, 1)

    def losses(generator: Tree, critic: Tree, noise: Array, real: Array) -> Tree:
        def fool(generator: Tree) -> Tree:
            return jnp.mean(jax.nn.softplus(-mlp(critic, jnp.tanh(mlp(generator, noise)))))

        def judge(critic: Tree) -> Tree:
            fake = jnp.tanh(mlp(generator, noise))
            truth = jnp.mean(jax.nn.softplus(-mlp(critic, real)))
            slope = jax.grad(lambda x: jnp.sum(mlp(critic, x)))(real)
            penalty = jnp.mean(jnp.sum(slope**2, axis=-1))
            return truth + jnp.mean(jax.nn.softplus(mlp(critic, fake))) + penalty

        return jax.value_and_grad(fool)(generator), jax.value_and_grad(judge)(critic)

    return losses, (generator, critic, draws.normal(16, 16), draws.normal(16, 64))


def _coupling(params: Tree, x: Array) -> tuple[Array, Array]:
    left, right = jnp.split(x, 2, axis=-1)
    log_scale, shift = jnp.split(mlp(params, left, jnp.tanh), 2, axis=-1)
    log_scale = 0.5 * jnp.tanh(log_scale)
    return jnp.concatenate([right * jnp.exp(log_scale) + shift, left], axis=-1), jnp.sum(
        log_scale, -1
    )


@GENERATIVE.program(
    "coupling_flow_grad", "six affine couplings on f32[64,16]: likelihood gradient", gradient=True
)
def _coupling_flow_grad() -> Built:
    draws = Draws(2)
    layers = [draws.layers(8, 32, 16) for _ in range(6)]

    def loss(layers: Tree, x: Array) -> Array:
        log_det = jnp.zeros(x.shape[0])
        for params in layers:
            x, change = _coupling(params, x)
            log_det = log_det + change
        return jnp.mean(0.5 * jnp.sum(x**2, axis=-1) - log_det)

    return jax.value_and_grad(loss), (layers, draws.normal(64, 16))


@GENERATIVE.program(
    "autoregressive_flow_inverse", "inverse of a masked autoregressive flow, f32[32,24]", loops=True
)
def _autoregressive_flow_inverse() -> Built:
    draws = Draws(3)

    def invert(first: Array, second: Array, z: Array) -> Tree:
        degree = jnp.arange(z.shape[1])
        into, out = degree[:, None] <= degree[None] % 23, degree[:, None] % 23 < degree[None]

        def step(i: Array, x: Array) -> Array:
            hidden = jnp.tanh(x @ (first * into))
            shift, log_scale = (
                hidden @ (second[0] * out),
                0.3 * jnp.tanh(hidden @ (second[1] * out)),
            )
            return x.at[:, i].set((z * jnp.exp(log_scale) + shift)[:, i])

        return lax.fori_loop(0, z.shape[1], step, jnp.zeros_like(z))

    return invert, (draws.dense(24, 24), draws.normal(2, 24, 24, scale=0.2), draws.normal(32, 24))


@GENERATIVE.program(
    "vector_quantizer_grad",
    "vector-quantized autoencoder, 64 codes, f32[96,24]: gradient",
    gradient=True,
)
def _vector_quantizer_grad() -> Built:
    draws = Draws(4)
    params = {
        "in": draws.layers(24, 32, 8),
        "codes": draws.normal(64, 8),
        "out": draws.layers(8, 32, 24),
    }

    def loss(params: Tree, x: Array) -> Array:
        code = mlp(params["in"], x)
        gap = jnp.sum((code[:, None] - params["codes"][None]) ** 2, axis=-1)
        nearest = params["codes"][jnp.argmin(gap, axis=-1)]
        passed = code + lax.stop_gradient(nearest - code)
        error = jnp.mean((mlp(params["out"], passed) - x) ** 2)
        pull = jnp.mean((lax.stop_gradient(code) - nearest) ** 2)
        return error + pull + 0.25 * jnp.mean((code - lax.stop_gradient(nearest)) ** 2)

    return jax.value_and_grad(loss), (params, draws.normal(96, 24))


@GENERATIVE.program(
    "energy_model_langevin",
    "20 Langevin steps on an energy network, f32[32,16]",
    gradient=True,
    loops=True,
)
def _energy_model_langevin() -> Built:
    draws = Draws(5)

    def sample(params: Tree, x: Array, seed: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Tree]:
            x, key = carry
            key, fresh = jax.random.split(key)
            energy, slope = jax.value_and_grad(lambda x: jnp.sum(mlp(params, x, jax.nn.silu)))(x)
            return (x - 0.05 * slope + 0.1 * jax.random.normal(fresh, x.shape), key), energy

        (x, _), energies = lax.scan(step, (x, jax.random.key(seed)), length=20)
        return x, energies

    return sample, (draws.layers(16, 48, 48, 1), draws.normal(32, 16), np.uint32(1))


def _time_features(time: Array, width: int) -> Array:
    rate = jnp.exp(-jnp.arange(width // 2) * (6.0 / width))
    angle = time[..., None] * rate
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def _denoiser_params(draws: Draws) -> Tree:
    return {
        "in": draws.kernel(3, 3, 3, 16),
        "time": draws.dense(32, 32),
        "blocks": [draws.kernel(3, 3, 16, 16) for _ in range(4)],
        "out": draws.kernel(3, 3, 16, 3),
    }


def _denoise(params: Tree, x: Array, time: Array) -> Array:
    """Predict the noise in f32[B, 12, 12, 3] at f32[B] times."""
    scale, shift = jnp.split(_time_features(time, 32) @ params["time"], 2, axis=-1)
    x = conv(x, params["in"])
    for first, second in zip(params["blocks"][::2], params["blocks"][1::2], strict=True):
        hidden = conv(jax.nn.silu(layer_norm(x)), first)
        hidden = layer_norm(hidden) * (1.0 + scale[:, None, None]) + shift[:, None, None]
        x = x + conv(jax.nn.silu(hidden), second)
    return conv(x, params["out"])


@DIFFUSION.program(
    "denoising_loss_grad",
    "noise-prediction loss of a small conv net, f32[4,12,12,3]: gradient",
    gradient=True,
    loops=True,
)
def _denoising_loss_grad() -> Built:
    draws = Draws(6)

    def loss(params: Tree, x: Array, seed: Array) -> Array:
        first, second = jax.random.split(jax.random.key(seed))
        time = jax.random.uniform(first, (x.shape[0],))
        noise = jax.random.normal(second, x.shape)
        signal = jnp.cos(0.5 * jnp.pi * time)[:, None, None, None]
        mixed = signal * x + jnp.sqrt(1.0 - signal**2) * noise
        return jnp.mean((_denoise(params, mixed, 100.0 * time) - noise) ** 2)

    return jax.value_and_grad(loss), (
        _denoiser_params(draws),
        draws.normal(4, 12, 12, 3),
        np.uint32(2),
    )


@DIFFUSION.program("ddim_sampling", "ten deterministic denoising steps, f32[1,12,12,3]", loops=True)
def _ddim_sampling() -> Built:
    draws = Draws(7)

    def sample(params: Tree, x: Array) -> Array:
        levels = jnp.cos(jnp.linspace(1.4, 0.1, 11))

        def step(x: Array, pair: Tree) -> tuple[Array, Array]:
            now, after = pair
            noise = _denoise(params, x, jnp.full(x.shape[:1], 100.0 * now))
            clean = (x - jnp.sqrt(1.0 - now**2) * noise) / now
            clean = jnp.clip(clean, -1.0, 1.0)
            return after * clean + jnp.sqrt(1.0 - after**2) * noise, jnp.mean(clean)

        return lax.scan(step, x, (levels[:-1], levels[1:]))[0]

    return sample, (_denoiser_params(draws), draws.normal(1, 12, 12, 3))


@DIFFUSION.program(
    "sliced_score_matching",
    "score matching by Jacobian-vector products, f32[512,12]: gradient",
    gradient=True,
)
def _sliced_score_matching() -> Built:
    draws = Draws(8)

    def loss(params: Tree, x: Array, direction: Array) -> Array:
        score, slope = jax.jvp(lambda x: mlp(params, x, jnp.tanh), (x,), (direction,))
        return jnp.mean(jnp.sum(direction * slope, -1) + 0.5 * jnp.sum(score * direction, -1) ** 2)

    return jax.value_and_grad(loss), (
        draws.layers(12, 48, 48, 12),
        draws.normal(512, 12),
        draws.normal(512, 12),
    )


@DIFFUSION.program(
    "rectified_flow_heun", "16 Heun steps of a learned velocity field, f32[64,8]", loops=True
)
def _rectified_flow_heun() -> Built:
    draws = Draws(9)

    def sample(params: Tree, x: Array) -> Tree:
        def velocity(x: Array, time: Array) -> Array:
            clock = jnp.broadcast_to(_time_features(10.0 * time, 8), (x.shape[0], 8))
            return mlp(params, jnp.concatenate([x, clock], axis=-1), jax.nn.silu)

        def step(i: Array, x: Array) -> Array:
            time = i.astype(jnp.float32) / 16.0
            first = velocity(x, time)
            second = velocity(x + first / 16.0, time + 1.0 / 16.0)
            return x + (first + second) / 32.0

        return lax.fori_loop(0, 16, step, x)

    return sample, (draws.layers(16, 48, 8), draws.normal(64, 8))
