"""Simulators of a neuron, of planets and of a robot arm, two of them with gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.third_party.common import Builder, Program

COMPARTMENTS, NEURON_DT = 8, 0.025


def _exp_euler(x: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
    s = alpha + beta
    return alpha / s + (x - alpha / s) * jnp.exp(-NEURON_DT * s)


def _vtrap(x: jax.Array, y: float) -> jax.Array:
    # The denominator is kept from zero also where the other branch is taken: gradients see both.
    return jnp.where(
        jnp.abs(x / y) < 1e-6,
        y * (1 - x / y / 2),
        x / (jnp.exp(jnp.where(jnp.abs(x / y) < 1e-6, y, x) / y) - 1),
    )


def _gates(states: Any, v: jax.Array) -> dict[str, jax.Array]:
    m = _exp_euler(states["HH_m"], 0.1 * _vtrap(-(v + 40), 10.0), 4.0 * jnp.exp(-(v + 65) / 18))
    h = _exp_euler(
        states["HH_h"], 0.07 * jnp.exp(-(v + 65) / 20), 1.0 / (jnp.exp(-(v + 35) / 10) + 1)
    )
    n = _exp_euler(states["HH_n"], 0.01 * _vtrap(-(v + 55), 10.0), 0.125 * jnp.exp(-(v + 65) / 80))
    return {"HH_m": m, "HH_h": h, "HH_n": n}


def _tridiagonal_solve(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    def forward(carry: Any, row: Any) -> Any:
        cp, dp = carry
        below, d, above, r = row
        denominator = d - below * cp
        new = (above / denominator, (r - below * dp) / denominator)
        return new, new

    def backward(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    zero = jnp.zeros((), right.dtype)
    _, (cp, dp) = lax.scan(forward, (zero, zero), (lower, diagonal, upper, right))
    return lax.scan(backward, zero, (cp, dp), reverse=True)[1]


def _cable_step(params: Any, low: jax.Array, up: jax.Array, carry: Any, current: Any) -> Any:
    v, states = carry["v"], {k: carry[k] for k in ("HH_m", "HH_h", "HH_n")}
    states = _gates(states, v)
    sodium = params["gNa"] * states["HH_m"] ** 3 * states["HH_h"]
    potassium = params["gK"] * states["HH_n"] ** 4
    leak = params["gLeak"]
    linear = sodium + potassium + leak
    constant = sodium * 50.0 - potassium * 77.0 - leak * 54.3
    external = jnp.zeros(COMPARTMENTS).at[0].add(current)
    v = _tridiagonal_solve(
        -NEURON_DT * low,
        1.0 + NEURON_DT * (linear + low + up),
        -NEURON_DT * up,
        v + NEURON_DT * (constant + external),
    )
    return {"v": v, **states}, v[jnp.array([0, COMPARTMENTS - 1])]


def hh_cable_grad() -> Program:
    """Gradient of a Hodgkin-Huxley cable, as jaxley does it; https://github.com/jax-ml/jax/issues/26145."""
    n, n_times = COMPARTMENTS, 160

    def simulate(params: Any, stimulus: jax.Array) -> Any:
        axial = params["axial"] * jnp.ones(n - 1)
        zero = jnp.zeros(1)
        low = jnp.concatenate([zero, axial])
        up = jnp.concatenate([axial, zero])
        init = {
            "v": jnp.full(n, -65.0),
            "HH_m": jnp.full(n, 0.053),
            "HH_h": jnp.full(n, 0.596),
            "HH_n": jnp.full(n, 0.318),
        }
        return lax.scan(partial(_cable_step, params, low, up), init, stimulus)[1]

    def loss(params: Any, stimulus: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.mean((simulate(params, stimulus) - target) ** 2)

    params = {
        "gNa": jnp.full(n, 120.0),
        "gK": jnp.full(n, 36.0),
        "gLeak": jnp.full(n, 0.3),
        "axial": jnp.float64(20.0),
    }
    t = jnp.arange(n_times)
    stimulus = jnp.where((t > 10) & (t < 70), 200.0, 0.0)
    return jax.value_and_grad(loss), (params, stimulus, jnp.full((n_times, 2), -60.0))


PLANET_STEPS, PLANET_DT, GRAVITY = 200, 0.3, 2.959122082855911e-04

PAIRS = np.array([(0, 1), (0, 2), (1, 2)])


def _kepler_step(x: Any, v: Any, gm: Any, dt: Any) -> tuple[jax.Array, jax.Array]:
    r0 = jnp.sqrt(jnp.sum(x * x))
    v0s = jnp.sum(v * v)
    u = jnp.sum(x * v)
    a = 1.0 / (2.0 / r0 - v0s / gm)
    motion = jnp.sqrt(gm / a**3)
    ecos0 = 1.0 - r0 / a
    esin0 = u / (motion * a * a)
    dm = motion * dt

    def newton(_: Any, de: Any) -> Any:
        c, s = jnp.cos(de), jnp.sin(de)
        f = de - ecos0 * s + esin0 * (1 - c) - dm
        fp = 1.0 - ecos0 * c + esin0 * s
        fpp = ecos0 * s + esin0 * c
        d1 = -f / fp
        return de - f / (fp + 0.5 * d1 * fpp)

    de = lax.fori_loop(0, 3, newton, dm)
    c, s = jnp.cos(de), jnp.sin(de)
    f = 1.0 + a / r0 * (c - 1.0)
    g = dt + (s - de) / motion
    x1 = f * x + g * v
    r1 = jnp.sqrt(jnp.sum(x1 * x1))
    fd = -a * a * motion / (r0 * r1) * s
    gd = 1.0 + a / r1 * (c - 1.0)
    return x1, fd * x + gd * v


def _jacobi_to_astrocentric(x: jax.Array, masses: jax.Array) -> jax.Array:
    total = jnp.cumsum(masses)
    shift = (masses[1:] / total[1:])[:, None] * x
    return x + jnp.cumsum(shift, axis=0) - shift


def _interaction(x: jax.Array, masses: jax.Array) -> jax.Array:
    xa = _jacobi_to_astrocentric(x, masses)
    mp = masses[1:]
    star = masses[0] * mp * (1.0 / jnp.sqrt(jnp.sum(x**2, 1)) - 1.0 / jnp.sqrt(jnp.sum(xa**2, 1)))
    d = xa[PAIRS[:, 0]] - xa[PAIRS[:, 1]]
    planets = mp[PAIRS[:, 0]] * mp[PAIRS[:, 1]] / jnp.sqrt(jnp.sum(d**2, 1))
    return GRAVITY * (jnp.sum(star) - jnp.sum(planets))


def _integrate(x: jax.Array, v: jax.Array, masses: jax.Array) -> Any:
    total = jnp.cumsum(masses)
    mu = masses[1:] * total[:-1] / total[1:]
    gm = GRAVITY * masses[0] * total[1:] / total[:-1]
    drift = jax.vmap(_kepler_step, in_axes=(0, 0, 0, None))

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = v - PLANET_DT * jax.grad(_interaction)(x, masses) / mu[:, None]
        x, v = drift(x, v, gm, PLANET_DT)
        return (x, v), _jacobi_to_astrocentric(x, masses)

    return lax.scan(step, (x, v), None, length=PLANET_STEPS)


def _position_and_velocity(period: Any, ecosw: Any, esinw: Any, phase: Any, gm: Any) -> Any:
    a = (gm * (period / (2 * jnp.pi)) ** 2) ** (1 / 3)
    e = jnp.sqrt(ecosw**2 + esinw**2)
    w = jnp.arctan2(esinw, ecosw)

    def newton(_: Any, q: Any) -> Any:
        return q - (q - e * jnp.sin(q) - phase) / (1 - e * jnp.cos(q))

    anomaly = lax.fori_loop(0, 4, newton, phase)
    motion = 2 * jnp.pi / period
    ce, se = jnp.cos(anomaly), jnp.sin(anomaly)
    b = jnp.sqrt(1 - e * e)
    cw, sw = jnp.cos(w), jnp.sin(w)
    px, py = a * (ce - e), a * b * se
    factor = motion * a / (1 - e * ce)
    vx, vy = -factor * se, factor * b * ce
    x = jnp.array([px * cw - py * sw, px * sw + py * cw, 0.0])
    v = jnp.array([vx * cw - vy * sw, vx * sw + vy * cw, 0.0])
    return x, v


def planet_symplectic_grad() -> Program:
    """Gradient of a fit of planets by Wisdom-Holman steps; https://github.com/kemasuda/jnkepler/issues/18."""

    def chi2(params: Any, observed: jax.Array) -> jax.Array:
        masses = jnp.concatenate([jnp.ones(1), jnp.exp(params["lnmass"])])
        gm = GRAVITY * jnp.cumsum(masses)[1:]
        orbits = (params["period"], params["ecosw"], params["esinw"], params["phase"])
        x, v = jax.vmap(_position_and_velocity)(*orbits, gm)
        _, xs = _integrate(x, v, masses)
        return jnp.sum((xs[::5, :, 0] - observed) ** 2) / 1e-4

    params = {
        "lnmass": jnp.log(jnp.array([3e-5, 8e-5, 2e-5])),
        "period": jnp.array([8.4, 13.1, 27.0]),
        "ecosw": jnp.array([0.02, -0.03, 0.01]),
        "esinw": jnp.array([0.01, 0.04, -0.02]),
        "phase": jnp.array([0.3, 2.1, 4.0]),
    }
    t = jnp.arange(PLANET_STEPS // 5)[:, None] * 5 * PLANET_DT + PLANET_DT
    angle = 2 * jnp.pi * t / params["period"] + params["phase"]
    observed = jnp.array([0.0809, 0.1088, 0.1762]) * jnp.cos(angle)
    return jax.value_and_grad(chi2), (params, observed)


JOINTS, ROBOT_DT = 10, 0.01


def _axes() -> np.ndarray[Any, Any]:
    axes = np.random.default_rng(10).normal(size=(JOINTS, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return axes


def _skew(v: np.ndarray[Any, Any]) -> jax.Array:
    return jnp.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def _forward_kinematics(axes: np.ndarray[Any, Any], q: jax.Array) -> jax.Array:
    links = np.tile(np.eye(4), (JOINTS, 1, 1))
    links[:, 0, 3] = 0.2
    world = jnp.zeros((JOINTS, 4, 4))
    for i in range(JOINTS):
        parent = world[i - 1] if i else jnp.eye(4)
        k = _skew(axes[i])
        rotation = jnp.eye(3) + jnp.sin(q[i]) * k + (1 - jnp.cos(q[i])) * k @ k
        joint = jnp.eye(4).at[:3, :3].set(rotation)
        world = world.at[i].set(parent @ links[i] @ joint)
    return world


def _mass_matrix(axes: np.ndarray[Any, Any], q: jax.Array, masses: jax.Array) -> Any:
    """The matrix, and the torques of gravity."""
    mask = np.tril(np.ones((JOINTS, JOINTS)))
    frames = _forward_kinematics(axes, q)
    position, rotation = frames[:, :3, 3], frames[:, :3, :3]
    centre = position + jnp.einsum("nij,j->ni", rotation, jnp.array([0.1, 0.0, 0.0]))
    z = jnp.einsum("nij,nj->ni", rotation, jnp.asarray(axes))
    arm = centre[:, None, :] - position[None, :, :]
    jv = jnp.cross(jnp.broadcast_to(z[None], arm.shape), arm) * mask[:, :, None]
    jw = jnp.broadcast_to(z[None], arm.shape) * mask[:, :, None]
    inertia = rotation @ (0.02 * np.eye(3)) @ jnp.swapaxes(rotation, 1, 2)
    matrix = jnp.einsum("lia,l,lja->ij", jv, masses, jv)
    matrix += jnp.einsum("lia,lab,ljb->ij", jw, inertia, jw)
    gravity = jnp.einsum("lia,l,a->i", jv, masses, jnp.array([0.0, 0.0, 9.81]))
    return matrix + 1e-3 * jnp.eye(JOINTS), gravity


def robot_mass_matrix_rollout() -> Program:
    """Rollout of an arm, its joints in a Python loop, as frax has it; https://github.com/jax-ml/jax/issues/26021."""
    axes = _axes()

    def rollout(q: jax.Array, qd: jax.Array, goal: jax.Array, masses: jax.Array) -> Any:
        def step(carry: Any, _: Any) -> Any:
            q, qd = carry
            matrix, gravity = _mass_matrix(axes, q, masses)
            tau = 20.0 * (goal - q) - 4.0 * qd
            factor = jnp.linalg.cholesky(matrix)
            y = jax.scipy.linalg.solve_triangular(factor, matrix @ tau, lower=True)
            qdd = jax.scipy.linalg.solve_triangular(factor.T, y, lower=False)
            # Gravity is compensated only in part.
            qdd = qdd - 0.05 * jax.scipy.linalg.cho_solve((factor, True), gravity)
            qd = qd + ROBOT_DT * qdd
            q = q + ROBOT_DT * qd
            return (q, qd), 0.5 * qd @ matrix @ qd

        return lax.scan(step, (q, qd), None, length=60)

    q = 0.3 * jax.random.normal(jax.random.PRNGKey(0), (JOINTS,), dtype=jnp.float64)
    goal, masses = jnp.linspace(-0.5, 0.5, JOINTS), jnp.linspace(2.0, 0.5, JOINTS)
    return rollout, (q, jnp.zeros(JOINTS), goal, masses)


WORKLOADS64: dict[str, Builder] = {
    "hh-cable-grad": hh_cable_grad,
    "planet-symplectic-grad": planet_symplectic_grad,
    "robot-mass-matrix-rollout": robot_mass_matrix_rollout,
}
