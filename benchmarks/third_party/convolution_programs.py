"""Convolutional networks trained inside of one compiled program: scans over batches, populations, volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import Builder, Program

Loss = Callable[[Any, Any, Any], jax.Array]


def _key(number: int) -> jax.Array:
    return jax.random.PRNGKey(number)


def _batches(batches: int, size: int, *image: int) -> tuple[jax.Array, jax.Array]:
    """Images, and their labels from 0 to 9."""
    images = jax.random.normal(_key(1), (batches, size, *image))
    return images, jax.random.randint(_key(2), (batches, size), 0, 10)


def _cross_entropy(apply: Callable[..., Any]) -> Loss:
    def loss(params: Any, images: Any, labels: Any) -> jax.Array:
        logits = apply(params, images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

    return loss


def _epoch(loss: Loss, optimizer: Any) -> Callable[..., Any]:
    """One pass over batches, in a scan."""

    def epoch(params: Any, state: Any, images: Any, labels: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, state), (images, labels))

    return epoch


def _small_network() -> Any:
    """Two layers with max pools, as in flax's example for MNIST."""
    import flax.linen as nn

    return nn.Sequential(
        [
            nn.Conv(16, (3, 3)), nn.relu, lambda x: nn.max_pool(x, (2, 2), (2, 2)),
            nn.Conv(32, (3, 3)), nn.relu, lambda x: nn.max_pool(x, (2, 2), (2, 2)),
            lambda x: x.reshape(x.shape[0], -1), nn.Dense(10),
        ]
    )  # fmt: skip


def flax_convnet_epoch() -> Program:
    """Eight steps of SGD with momentum on 32 images of one channel."""
    network, (images, labels) = _small_network(), _batches(8, 32, 28, 28, 1)
    params, optimizer = network.init(_key(0), images[0]), optax.sgd(1e-2, momentum=0.9)
    epoch = _epoch(_cross_entropy(network.apply), optimizer)
    return epoch, (params, optimizer.init(params), images, labels)


def flax_residual_epoch() -> Program:
    """Four steps of a residual network with group normalisation."""
    import flax.linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(16, (3, 3))(x)
            for stride in (1, 2):
                y = nn.Conv(16 * stride, (3, 3), (stride, stride))(nn.relu(nn.GroupNorm(4)(x)))
                y = nn.Conv(16 * stride, (3, 3))(nn.relu(nn.GroupNorm(4)(y)))
                x = y + nn.Conv(16 * stride, (1, 1), (stride, stride))(x)
            return nn.Dense(10)(jnp.mean(x, (1, 2)))

    network, (images, labels) = Network(), _batches(4, 32, 16, 16, 3)
    params, optimizer = network.init(_key(0), images[0]), optax.sgd(1e-2, momentum=0.9)
    epoch = _epoch(_cross_entropy(network.apply), optimizer)
    return epoch, (params, optimizer.init(params), images, labels)


def equinox_convnet_epoch() -> Program:
    """Eight steps with channels first, as equinox has them, and a vmapped model."""
    import equinox as eqx

    keys = jax.random.split(_key(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 8, 4, key=keys[0]), eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Conv2d(8, 16, 3, key=keys[1]), eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(1600, 10, key=keys[2]),
        ]
    )  # fmt: skip
    params, static = eqx.partition(model, eqx.is_array)
    optimizer = optax.sgd(1e-2, momentum=0.9)
    images, labels = _batches(8, 32, 1, 28, 28)
    loss = _cross_entropy(lambda params, x: jax.vmap(eqx.combine(params, static))(x))
    return _epoch(loss, optimizer), (params, optimizer.init(params), images, labels)


def flax_convnet_population() -> Program:
    """Four networks of different weights, each trained in a scan, by vmap."""
    network, (images, labels) = _small_network(), _batches(4, 16, 16, 16, 3)
    params = jax.vmap(lambda key: network.init(key, images[0]))(jax.random.split(_key(0), 4))
    optimizer = optax.sgd(1e-2)
    epoch = _epoch(_cross_entropy(network.apply), optimizer)

    def train(params: Any) -> Any:
        return jax.vmap(lambda own: epoch(own, optimizer.init(own), images, labels))(params)

    return train, (params,)


def flax_convnet_maml() -> Program:
    """Outer gradient of model-agnostic meta-learning: through three inner steps, over four tasks."""
    network, (images, labels) = _small_network(), _batches(4, 10, 28, 28, 1)
    loss = _cross_entropy(network.apply)

    def adapted(params: Any, x: Any, y: Any) -> Any:
        def step(own: Any, _: Any) -> Any:
            return jax.tree.map(lambda w, g: w - 0.1 * g, own, jax.grad(loss)(own, x, y)), None

        return jax.lax.scan(step, params, None, 3)[0]

    def outer(params: Any, images: Any, labels: Any) -> jax.Array:
        tasks = jax.vmap(lambda x, y: loss(adapted(params, x, y), x, y))
        return jnp.mean(tasks(images, labels))

    return jax.grad(outer), (network.init(_key(0), images[0]), images, labels)


def flax_unet3d_step() -> Program:
    """A step of a small U-Net on volumes, with a strided and a transposed layer."""
    import flax.linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            wide = nn.relu(nn.Conv(8, (3, 3, 3))(x))
            deep = nn.relu(nn.Conv(16, (3, 3, 3), (2, 2, 2))(wide))
            deep = nn.relu(nn.Conv(16, (3, 3, 3))(deep))
            up = nn.ConvTranspose(8, (2, 2, 2), (2, 2, 2))(deep)
            joined = nn.relu(nn.Conv(8, (3, 3, 3))(jnp.concatenate([wide, up], -1)))
            return nn.Conv(1, (3, 3, 3))(joined)

    network, volumes = Network(), jax.random.normal(_key(1), (2, 24, 24, 24, 1))
    params, optimizer = network.init(_key(0), volumes), optax.sgd(1e-2)

    def step(params: Any, volumes: Any) -> Any:
        gradient = jax.grad(lambda own: jnp.mean((network.apply(own, volumes) - volumes) ** 2))(
            params
        )
        return optax.apply_updates(params, optimizer.update(gradient, optimizer.init(params))[0])

    return step, (params, volumes)


def scipy_filters() -> Program:
    """A smoothed image and its edges, and a signal behind a long filter."""
    image, signal = jax.random.normal(_key(0), (256, 256)), jax.random.normal(_key(1), (16_384,))
    ramp = jnp.linspace(-2, 2, 9)
    bell = jnp.exp(-(ramp[:, None] ** 2 + ramp**2))
    edges = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    taps = jnp.sinc(jnp.linspace(-4, 4, 255))

    def filters(image: jax.Array, signal: jax.Array) -> Any:
        smooth = jax.scipy.signal.convolve2d(image, bell / jnp.sum(bell), mode="same")
        across = jax.scipy.signal.correlate2d(smooth, edges, mode="same")
        down = jax.scipy.signal.correlate2d(smooth, edges.T, mode="same")
        return jnp.hypot(across, down), jnp.convolve(signal, taps, mode="same")

    return filters, (image, signal)


WORKLOADS: dict[str, Builder] = {
    "flax-convnet-epoch": flax_convnet_epoch,
    "flax-residual-epoch": flax_residual_epoch,
    "equinox-convnet-epoch": equinox_convnet_epoch,
    "flax-convnet-population": flax_convnet_population,
    "flax-convnet-maml": flax_convnet_maml,
    "flax-unet3d-step": flax_unet3d_step,
    "scipy-filters": scipy_filters,
}
