"""The programs: each a step from state to state, written once for an array namespace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

State = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: what it is.
        state: arrays it starts from, float32.
        step: (array namespace, gradient of a function or None, state) -> the next state.
        differentiates: needs gradients, which NumPy does not have.
    """

    name: str
    state: Callable[[np.random.Generator], State]
    step: Callable[[Any, Any, State], State]
    differentiates: bool = False


def _float(*arrays: Any) -> State:
    return tuple(np.asarray(x, np.float32) for x in arrays)


def _spring_net(xp: Any, grad: Any, state: State) -> State:
    """Particles on a ring of springs, with gravity, drag and a floor: the physics simulator."""
    x, v = state
    left = xp.roll(x, 1, axis=0) - x
    right = xp.roll(x, -1, axis=0) - x
    force = 0.0 * x
    for d in (left, right):
        length = xp.sqrt(xp.sum(d * d, axis=1, keepdims=True) + 1e-6)
        force = force + 40.0 * (length - 0.1) * d / length
    gravity = xp.stack([0.0 * x[:, 0], 0.0 * x[:, 1] - 9.81], axis=1)
    v = (v + 0.002 * (force + gravity)) * 0.999
    x = x + 0.002 * v
    below = x[:, 1:] < 0.0
    v = xp.where(below, -0.5 * v, v)
    return xp.where(below, 0.0 * x, x), v


def _metropolis(xp: Any, grad: Any, state: State) -> State:
    """256 chains of a Metropolis sampler on a two-dimensional density; noise comes with the state."""
    x, total, noise = state
    noise = xp.roll(noise, 1, axis=0)

    def energy(p: Any) -> Any:
        a, b = p[:, 0], p[:, 1]
        return (1.0 - a) ** 2 * 0.5 + 5.0 * (b - a * a) ** 2

    proposal = x + 0.5 * (noise[:, :2] - 0.5)
    accept = xp.log(noise[:, 2] + 1e-6) < energy(x) - energy(proposal)
    x = xp.where(xp.reshape(accept, (-1, 1)), proposal, x)
    return x, total + x, noise


def _policy(xp: Any, grad: Any, state: State) -> State:
    """REINFORCE on 32 carts with poles at once: dynamics, policy gradient, update."""
    w, b, cart = state
    x, dx, angle, spin = (cart[:, k] for k in range(4))

    def loss(w: Any, b: Any) -> Any:
        logit = xp.sum(xp.tanh(cart @ w) * b, axis=1)
        p = 1.0 / (1.0 + xp.exp(-logit))
        push = xp.where(angle > 0.0, xp.log(p + 1e-6), xp.log(1.0 - p + 1e-6))
        return -xp.mean(push * (1.0 - xp.abs(angle)))

    dw, db = grad(loss, (0, 1))(w, b)
    w, b = w - 0.1 * dw, b - 0.1 * db
    force = 10.0 * xp.tanh(xp.sum(xp.tanh(cart @ w) * b, axis=1))
    pull = (force + 0.05 * spin * spin * xp.sin(angle)) / 1.1
    turn = (9.8 * xp.sin(angle) - xp.cos(angle) * pull) / (
        0.5 * (1.3333 - 0.1 * xp.cos(angle) * xp.cos(angle) / 1.1)
    )
    slide = pull - 0.05 * turn * xp.cos(angle) / 1.1
    cart = xp.stack(
        [x + 0.02 * dx, dx + 0.02 * slide, xp.tanh(angle + 0.02 * spin), 0.9 * spin + 0.02 * turn],
        axis=1,
    )
    return w, b, xp.tanh(cart * 0.5) * 2.0


def _lstm(xp: Any, grad: Any, state: State) -> State:
    """An LSTM written by hand, unrolled over eight words and trained."""
    w, u, data = state

    def loss(w: Any, u: Any) -> Any:
        h, c = data[0] * 0.0, data[0] * 0.0
        for t in range(data.shape[0]):
            gates = data[t] @ w + h @ u
            i, f, o, g = (gates[:, 16 * k : 16 * k + 16] for k in range(4))
            sig = [1.0 / (1.0 + xp.exp(-z)) for z in (i, f, o)]
            c = sig[1] * c + sig[0] * xp.tanh(g)
            h = sig[2] * xp.tanh(c)
        return xp.mean((h - data[-1]) ** 2)

    dw, du = grad(loss, (0, 1))(w, u)
    return w - 0.1 * dw, u - 0.1 * du, data


def _kalman(xp: Any, grad: Any, state: State) -> State:
    """128 Kalman filters of position and velocity, with the 2x2 algebra written out."""
    x, v, a, b, d, t = state
    x, v, t = x + 0.1 * v, v, t + 0.1
    a, b, d = a + 0.2 * b + 0.01 * d + 1e-4, b + 0.1 * d, d + 1e-3
    seen = xp.sin(t) * 2.0
    gain = a + 0.25
    k, m = a / gain, b / gain
    error = seen - x
    x, v = x + k * error, v + m * error
    return x, v, (1.0 - k) * a, (1.0 - k) * b, d - m * b, t


def _life(xp: Any, grad: Any, state: State) -> State:
    """The game of life on a torus."""
    (cells,) = state
    count = 0.0 * cells
    for i in (-1, 0, 1):
        for j in (-1, 0, 1):
            if i or j:
                count = count + xp.roll(cells, (i, j), axis=(0, 1))
    alive = (cells > 0.5) & (xp.abs(count - 2.5) < 1.0) | (xp.abs(count - 3.0) < 0.5)
    return (xp.where(alive, 1.0 + 0.0 * cells, 0.0 * cells),)


def _bodies(xp: Any, grad: Any, state: State) -> State:
    """Gravity between 64 bodies, leapfrog."""
    x, v, mass = state
    for _ in range(2):
        d = xp.expand_dims(x, axis=0) - xp.expand_dims(x, axis=1)
        distance = xp.sum(d * d, axis=-1) + 0.01
        pull = mass / (distance * xp.sqrt(distance))
        v = v + 0.001 * xp.sum(xp.expand_dims(pull, axis=-1) * d, axis=1)
        x = x + 0.001 * v
    return x, v, mass


def _circles(xp: Any, grad: Any, state: State) -> State:
    """Differentiable rendering: five circles move until they look like an image."""
    centers, radii, image, grid = state

    def loss(centers: Any, radii: Any) -> Any:
        picture = image * 0.0
        for k in range(5):
            d = grid - centers[k]
            distance = xp.sqrt(xp.sum(d * d, axis=-1) + 1e-6)
            cover = 1.0 / (1.0 + xp.exp((distance - radii[k]) * 40.0))
            picture = picture + (1.0 - picture) * cover
        return xp.mean((picture - image) ** 2)

    dc, dr = grad(loss, (0, 1))(centers, radii)
    return centers - 0.05 * dc, radii - 0.05 * dr, image, grid


def _grid(n: int) -> Any:
    axis = np.linspace(0, 1, n)
    return np.stack(np.meshgrid(axis, axis), axis=-1)


PROGRAMS: Final = (
    Program(
        "physics simulator",
        lambda r: _float(r.uniform(0.2, 1.0, (256, 2)), 0.1 * r.normal(size=(256, 2))),
        _spring_net,
    ),
    Program(
        "Metropolis sampler",
        lambda r: _float(r.normal(size=(256, 2)), np.zeros((256, 2)), r.uniform(size=(256, 3))),
        _metropolis,
    ),
    Program(
        "CartPole REINFORCE",
        lambda r: _float(
            0.5 * r.normal(size=(4, 16)), 0.5 * r.normal(size=16), 0.1 * r.normal(size=(32, 4))
        ),
        _policy,
        True,
    ),
    Program(
        "LSTM by hand",
        lambda r: _float(
            0.3 * r.normal(size=(16, 64)), 0.3 * r.normal(size=(16, 64)), r.normal(size=(8, 16, 16))
        ),
        _lstm,
        True,
    ),
    Program(
        "Kalman filter",
        lambda r: _float(
            r.normal(size=128), r.normal(size=128), np.ones(128), np.zeros(128), np.ones(128),
            r.uniform(size=128),
        ),
        _kalman,
    ),
    Program("game of life", lambda r: _float(r.integers(0, 2, (64, 64))), _life),
    Program(
        "n-body",
        lambda r: _float(
            r.normal(size=(64, 3)), 0.1 * r.normal(size=(64, 3)), r.uniform(0.5, 1.0, 64)
        ),
        _bodies,
    ),
    Program(
        "circles",
        lambda r: _float(
            r.uniform(0.2, 0.8, (5, 2)), r.uniform(0.1, 0.2, 5),
            (np.linalg.norm(_grid(32) - 0.5, axis=-1) < 0.3), _grid(32),
        ),
        _circles,
        True,
    ),
)  # fmt: skip
