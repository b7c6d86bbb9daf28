"""Ten programs over all CPU devices of the process.

Each builder returns ``(make, args)``. ``make()`` returns a new function, jitted or mapped, so that jax
compiles it anew whenever it is made. Sizes are those of the whole program and do not depend on the number
of devices, which must divide 64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Built = tuple[Callable[[], Callable[..., Any]], tuple[Any, ...]]


def draws(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """f32[*shape], normal."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (scale * values).astype(np.float32)


def mesh() -> Mesh:
    """All devices along one axis, ``d``."""
    return Mesh(np.array(jax.devices("cpu")), ("d",))


def put(x: Any, *axes: str | None) -> Array:
    """`x` with its axes over the devices as named."""
    placed: Array = jax.device_put(x, NamedSharding(mesh(), P(*axes)))
    return placed


def mapped(
    named: str, fn: Callable[..., Any], inputs: tuple[P, ...], outputs: Any
) -> Callable[[], Any]:
    """Makes a jitted `fn` that runs on every device over its piece."""

    def make() -> Any:
        over = jax.shard_map(fn, mesh=mesh(), in_specs=inputs, out_specs=outputs, check_vma=False)

        def run(*args: Any) -> Any:
            return over(*args)

        run.__name__ = run.__qualname__ = named
        return jax.jit(run)

    return make


def partitioned(named: str, fn: Callable[..., Any]) -> Callable[[], Any]:
    """Makes a jitted `fn` that XLA partitions as its arguments lie."""

    def make() -> Any:
        def run(*args: Any) -> Any:
            return fn(*args)

        run.__name__ = run.__qualname__ = named
        return jax.jit(run)

    return make


def mlp_training() -> Built:
    """A training step of an MLP with Adam; the batch is cut, XLA adds the all-reduces."""

    def loss(weights: Any, x: Array, y: Array) -> Array:
        for w, b in weights[:-1]:
            x = jax.nn.gelu(x @ w + b)
        w, b = weights[-1]
        return -(jax.nn.log_softmax(x @ w + b) * y).sum(-1).mean()

    def step(weights: Any, m: Any, v: Any, x: Array, y: Array) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
        new = jax.tree.map(lambda w, a, s: w - 1e-3 * a / (jnp.sqrt(s) + 1e-8), weights, m, v)
        return new, m, v, value

    widths = (64, 128, 128, 10)
    layers = [
        (put(draws(i, o, scale=i**-0.5)), put(np.zeros(o, np.float32)))
        for i, o in itertools.pairwise(widths)
    ]
    zeros = jax.tree.map(jnp.zeros_like, layers)
    x = put(draws(512, 64), "d")
    y = put(np.eye(10, dtype=np.float32)[np.arange(512) % 10], "d")
    return partitioned("mlp_training", step), (layers, zeros, zeros, x, y)


def transformer_training() -> Built:
    """An SGD step of a two-layer transformer, the mean of the gradients over the devices."""
    width, heads = 32, 4

    def norm(x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def block(x: Array, layer: Any) -> Array:
        qkv = norm(x) @ layer["qkv"]
        q, k, v = (
            a.reshape(*a.shape[:-1], heads, -1).swapaxes(1, 2) for a in jnp.split(qkv, 3, -1)
        )
        scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (width / heads) ** -0.5)
        x = x + (scores @ v).swapaxes(1, 2).reshape(x.shape) @ layer["out"]
        return x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]

    def loss(weights: Any, x: Array) -> Array:
        out = x
        for layer in weights:
            out = block(out, layer)
        return ((norm(out)[:, :-1] - x[:, 1:]) ** 2).mean()

    def step(weights: Any, x: Array) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x)
        grads = jax.tree.map(lambda g: lax.pmean(g, "d"), grads)
        new = jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads)
        return new, lax.pmean(value, "d")

    shapes = {"qkv": (width, 96), "out": (width, width), "up": (width, 128), "down": (128, width)}
    layers = [
        {name: put(draws(*shape, seed=k, scale=shape[0] ** -0.5)) for name, shape in shapes.items()}
        for k in range(2)
    ]
    inputs = (P(), P("d"))
    return mapped("transformer_training", step, inputs, P()), (
        layers,
        put(draws(64, 24, width), "d"),
    )


def tensor_parallel() -> Built:
    """Four MLP blocks whose hidden units are cut: a normalization, two products and a sum each."""

    def fn(x: Array, up: Array, down: Array) -> Array:
        for k in range(4):
            centred = x - x.mean(-1, keepdims=True)
            normed = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            x = x + lax.psum(jax.nn.gelu(normed @ up[k]) @ down[k], "d")
        return x

    args = (
        put(draws(128, 64)),
        put(draws(4, 64, 256, scale=0.1), None, None, "d"),
        put(draws(4, 256, 64, scale=0.05), None, "d", None),
    )
    inputs = (P(), P(None, None, "d"), P(None, "d", None))
    return mapped("tensor_parallel", fn, inputs, P()), args


def halo_exchange() -> Built:
    """Sixty steps of a wave equation on a 256x128 grid, rows cut, edges exchanged around a ring."""
    count = len(jax.devices("cpu"))
    up = [(i, (i + 1) % count) for i in range(count)]
    down = [(b, a) for a, b in up]

    def fn(now: Array, before: Array) -> Any:
        def body(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            now, before = carry
            wide = jnp.concatenate(
                [lax.ppermute(now[-1:], "d", up), now, lax.ppermute(now[:1], "d", down)]
            )
            sides = jnp.roll(now, 1, 1) + jnp.roll(now, -1, 1)
            laplace = wide[:-2] + wide[2:] + sides - 4.0 * now
            return 2.0 * now - before + 0.2 * laplace - 0.01 * (now - before), now

        return lax.fori_loop(0, 60, body, (now, before))

    field = draws(256, 128)
    args = (put(field, "d"), put(0.99 * field, "d"))
    return mapped("halo_exchange", fn, (P("d"), P("d")), P("d")), args


def pmapped_rollout() -> Built:
    """A cart-pole with random pushes, 200 steps of 64 environments, by ``pmap``."""

    def rollout(state: Array, key: Array) -> Any:
        def body(state: Array, key: Array) -> tuple[Array, Array]:
            x, dx, angle, spin = state
            force = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 10.0, -10.0)
            sin, cos = jnp.sin(angle), jnp.cos(angle)
            pull = (force + 0.05 * spin**2 * sin) / 1.1
            turn = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
            push = pull - 0.05 * turn * cos / 1.1
            new = jnp.stack(
                [x + 0.02 * dx, dx + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn]
            )
            alive = (jnp.abs(new[0]) < 2.4) & (jnp.abs(new[2]) < 0.21)
            return jnp.where(alive, new, 0.05 * cos), alive.mean()

        state, alive = lax.scan(body, state, jax.random.split(key, 200))
        return state, lax.pmean(alive.mean(), "d")

    count = len(jax.devices("cpu"))
    keys = jax.random.split(jax.random.key(1), count)

    def make() -> Any:
        def pmapped_rollout(state: Array, key: Array) -> Any:
            return rollout(state, key)

        return jax.pmap(pmapped_rollout, axis_name="d")

    return make, (draws(count, 4, 64 // count, scale=0.05), keys)


def particles() -> Built:
    """Ten steps of 256 attracting bodies; every device moves its own, and gathers all places."""

    def fn(place: Array, speed: Array) -> Any:
        def body(carry: tuple[Array, Array], _: None) -> tuple[Any, None]:
            place, speed = carry
            everyone = lax.all_gather(place, "d", tiled=True)
            apart = everyone[None] - place[:, None]
            near = (apart**2).sum(-1) + 0.05
            speed = speed + 1e-3 * (apart * (near * jnp.sqrt(near))[..., None] ** -1).sum(1)
            return (place + 0.01 * speed, speed), None

        return lax.scan(body, (place, speed), None, length=10)[0]

    args = (put(draws(256, 3), "d"), put(draws(256, 3, seed=1, scale=0.1), "d"))
    return mapped("particles", fn, (P("d"), P("d")), P("d")), args


def conjugate_gradients() -> Built:
    """Forty conjugate-gradient steps for a banded system: two sums over all devices in each."""

    def fn(rhs: Array, weight: Array) -> Array:
        def product(x: Array) -> Array:
            return (2.5 + weight) * x - jnp.roll(x, 1, 1) - jnp.roll(x, -1, 1)

        def body(carry: Any, _: None) -> tuple[Any, None]:
            x, r, p, rr = carry
            ap = product(p)
            alpha = rr / lax.psum((p * ap).sum(), "d")
            x, r = x + alpha * p, r - alpha * ap
            new = lax.psum((r * r).sum(), "d")
            return (x, r, r + new / rr * p, new), None

        start = (jnp.zeros_like(rhs), rhs, rhs, lax.psum((rhs * rhs).sum(), "d"))
        return lax.scan(body, start, None, length=40)[0][0]

    args = (put(draws(64, 256), "d"), put(np.abs(draws(64, 256, seed=1)), "d"))
    return mapped("conjugate_gradients", fn, (P("d"), P("d")), P("d")), args


def transposed() -> Built:
    """Mixing along both axes of a cut f32[256,256], six times, by all-to-all exchanges."""

    def fn(x: Array) -> Array:
        def mix(x: Array) -> Array:
            weight = jax.nn.softmax(x, axis=1)
            centred = x - (weight * x).sum(1, keepdims=True)
            return jnp.tanh(centred) + 0.1 * jnp.sin(jnp.roll(x, 3, 1))

        for _ in range(6):
            x = lax.all_to_all(mix(x), "d", 1, 0, tiled=True)
            x = lax.all_to_all(mix(x.T).T, "d", 0, 1, tiled=True)
        return x

    return mapped("transposed", fn, (P("d"),), P("d")), (put(draws(256, 256), "d"),)


def sharded_vocabulary() -> Built:
    """Layer norm, logits over a cut vocabulary, softmax cross entropy and its gradient."""

    def loss(x: Array, scale: Array, table: Array, labels: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        normed = scale * centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        logits = normed @ table
        hit = jax.nn.one_hot(labels, table.shape[1])
        return (jax.nn.logsumexp(logits, -1) - (logits * hit).sum(-1)).mean()

    args = (
        put(draws(128, 64)),
        put(np.ones(64, np.float32)),
        put(draws(64, 2048, scale=0.1), None, "d"),
        put((np.arange(128) * 37 % 2048).astype(np.int32)),
    )
    return partitioned("sharded_vocabulary", jax.value_and_grad(loss, (0, 1, 2))), args


def metropolis() -> Built:
    """A hundred Metropolis steps of 128 chains on a banana-shaped density, chains cut."""

    def density(x: Array) -> Array:
        return -((1.0 - x[..., 0]) ** 2) / 2.0 - 5.0 * (x[..., 1] - x[..., 0] ** 2) ** 2

    def fn(x: Array, keys: Array) -> Any:
        def chain(x: Array, key: Array) -> Any:
            def body(x: Array, key: Array) -> tuple[Array, Array]:
                step, accept = jax.random.split(key)
                new = x + 0.4 * jax.random.normal(step, (2,))
                better = jnp.log(jax.random.uniform(accept)) < density(new) - density(x)
                x = jnp.where(better, new, x)
                return x, better

            return lax.scan(body, x, jax.random.split(key, 100))

        last, accepted = jax.vmap(chain)(x, keys)
        return last, accepted.mean()

    keys = jax.device_put(jax.random.split(jax.random.key(0), 128), NamedSharding(mesh(), P("d")))
    return partitioned("metropolis", fn), (put(draws(128, 2), "d"), keys)


PROGRAMS: dict[str, Callable[[], Built]] = {
    build.__name__: build
    for build in (
        mlp_training, transformer_training, tensor_parallel, halo_exchange, pmapped_rollout,
        particles, conjugate_gradients, transposed, sharded_vocabulary, metropolis,
    )
}  # fmt: skip
"""Name -> builder."""
