"""Robots: kinematics and dynamics of arms, control by optimisation, and estimation of pose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def _joint(angle: Any, row: Any) -> Any:
    """The transform of one joint from its angle and Denavit-Hartenberg numbers."""
    a, alpha, d = row
    c, s, ca, sa = jnp.cos(angle), jnp.sin(angle), jnp.cos(alpha), jnp.sin(alpha)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    rows = [
        [c, -s * ca, s * sa, a * c],
        [s, c * ca, -c * sa, a * s],
        [zero, sa, ca, d],
        [zero, zero, zero, one],
    ]
    return jnp.stack([jnp.stack(r) for r in rows])


def _hand(angles: Any, table: Any) -> Any:
    """The pose of the hand of an arm."""

    def chain(pose: Any, joint: Any) -> Any:
        return pose @ _joint(*joint), None

    return lax.scan(chain, jnp.eye(4), (angles, table))[0]


def reach_targets() -> Program:
    """Joint angles that bring the hand of an arm to targets, by damped least squares."""

    def fn(angles: Any, targets: Any, table: Any, damping: Any) -> Any:
        def reach(angles: Any, target: Any) -> Any:
            def error(angles: Any) -> Any:
                pose = _hand(angles, table)
                turn = 0.5 * jnp.cross(pose[:3, :3].T, target[:3, :3].T).sum(0)
                return jnp.concatenate([target[:3, 3] - pose[:3, 3], 0.3 * turn])

            def step(angles: Any, _: Any) -> Any:
                jacobian = jax.jacfwd(error)(angles)
                left = jacobian @ jacobian.T + damping * jnp.eye(6)
                change = jacobian.T @ jnp.linalg.solve(left, error(angles))
                angles = angles - jnp.clip(change, -0.3, 0.3)
                return angles, jnp.sum(error(angles) ** 2)

            return lax.scan(step, angles, None, length=12)

        return jax.vmap(reach)(angles, targets)

    half = np.pi / 2
    lengths = [0.0, 0.0, 0.05, -0.05, 0.0, 0.08, 0.0]
    twists = [half, -half, half, half, -half, half, 0.0]
    offsets = [0.3, 0.0, 0.4, 0.0, 0.4, 0.0, 0.1]
    table = jnp.asarray(np.stack([lengths, twists, offsets], axis=1))
    angles = 0.4 + 0.3 * normal(1, 8, 7)
    targets = jax.vmap(_hand, (0, None))(angles + 0.2 * normal(2, 8, 7), table)
    return fn, (angles, targets, table, jnp.asarray(0.01))


def _lagrangian(q: Any, v: Any, arm: dict[str, Any]) -> Any:
    """Kinetic less potential energy of a planar arm with a mass at each end."""
    angle, spin = jnp.cumsum(q), jnp.cumsum(v)
    vx = jnp.cumsum(-arm["length"] * jnp.sin(angle) * spin)
    vy = jnp.cumsum(arm["length"] * jnp.cos(angle) * spin)
    height = jnp.cumsum(arm["length"] * jnp.sin(angle))
    kinetic = 0.5 * jnp.sum(arm["mass"] * (vx**2 + vy**2) + arm["inertia"] * spin**2)
    return kinetic - 9.81 * jnp.sum(arm["mass"] * height)


def swinging_arm() -> Program:
    """A three-link arm held by a controller, from the derivatives of its Lagrangian."""

    def fn(q: Any, v: Any, goal: Any, gains: Any, arm: dict[str, Any]) -> Any:
        def acceleration(q: Any, v: Any) -> Any:
            mass = jax.hessian(_lagrangian, argnums=1)(q, v, arm)
            mixed = jax.jacfwd(jax.grad(_lagrangian, argnums=1), argnums=0)(q, v, arm)
            force = jax.grad(_lagrangian)(q, v, arm)
            torque = gains[0] * (goal - q) - gains[1] * v
            return jnp.linalg.solve(mass, force - mixed @ v + torque)

        def step(state: Any, _: Any) -> Any:
            q, v = state
            v = v + 0.01 * acceleration(q, v)
            q = q + 0.01 * v
            return (q, v), q

        return lax.scan(step, (q, v), None, length=40)

    arm = {
        "length": jnp.asarray([0.5, 0.4, 0.3]),
        "mass": jnp.asarray([2.0, 1.5, 1.0]),
        "inertia": jnp.asarray([0.05, 0.04, 0.02]),
    }
    gains = jnp.asarray([20.0, 3.0])
    return fn, (0.3 * normal(3, 3), jnp.zeros(3), jnp.asarray([0.8, -0.4, 0.2]), gains, arm)


def box_control() -> Program:
    """Receding-horizon control of a drone's height with bounded thrust, by ADMM."""
    horizon, states = 30, 4

    def fn(a: Any, b: Any, start: Any, goal: Any, limit: Any) -> Any:
        def response(carry: Any, _: Any) -> Any:
            return a @ carry, carry

        _, powers = lax.scan(response, b, None, length=horizon)
        later = jnp.arange(horizon)[:, None] - jnp.arange(horizon)[None, :]
        blocks = jnp.where((later >= 0)[..., None], powers[jnp.maximum(later, 0)], 0.0)
        effect = blocks.transpose(0, 2, 1).reshape(horizon * states, horizon)
        _, free = lax.scan(lambda x, _: (a @ x, a @ x), start, None, length=horizon)
        weight = jnp.tile(jnp.array([1.0, 0.1, 0.5, 0.05]), horizon)
        hessian = effect.T @ (weight[:, None] * effect) + 0.3 * jnp.eye(horizon)
        slope = effect.T @ (weight * (free - goal).reshape(-1))
        rho = 1.0
        factor = jax.scipy.linalg.cho_factor(hessian + rho * jnp.eye(horizon))

        def iterate(carry: Any, _: Any) -> Any:
            z, dual = carry
            u = jax.scipy.linalg.cho_solve(factor, rho * (z - dual) - slope)
            new = jnp.clip(u + dual, -limit, limit)
            return (new, dual + u - new), None

        zero = jnp.zeros(horizon)
        (z, dual), _ = lax.scan(iterate, (zero, zero), None, length=60)
        return z, rho * dual, (free.reshape(-1) + effect @ z).reshape(horizon, states)

    a = jnp.eye(states) + 0.1 * jnp.eye(states, k=1)
    b = jnp.asarray([0.0, 0.02, 0.1, 0.4])
    goal = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    return fn, (a, b, 0.5 * normal(4, states), goal, jnp.asarray(0.6))


def _quaternion_product(p: Any, q: Any) -> Any:
    w, v = p[0], p[1:]
    return jnp.concatenate(
        [(w * q[0] - v @ q[1:])[None], w * q[1:] + q[0] * v + jnp.cross(v, q[1:])]
    )


def _rotation(q: Any) -> Any:
    w, x, y, z = q
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def attitude_filter() -> Program:
    """Attitude and gyroscope bias from inertial and magnetic data, by an error-state filter."""
    count = 600

    def fn(gyroscope: Any, gravity: Any, field: Any, noise: Any) -> Any:
        def cross(v: Any) -> Any:
            return jnp.cross(jnp.eye(3), v)

        def sample(carry: Any, inputs: Any) -> Any:
            q, bias, cov = carry
            spin, down, north = inputs
            turn = 0.01 * (spin - bias)
            q = _quaternion_product(q, jnp.concatenate([jnp.ones(1), 0.5 * turn]))
            move = jnp.block(
                [[jnp.eye(3) - cross(turn), -0.01 * jnp.eye(3)], [jnp.zeros((3, 3)), jnp.eye(3)]]
            )
            cov = move @ cov @ move.T + noise[0] * jnp.eye(6)
            turned = _rotation(q).T
            expected = jnp.concatenate([turned[:, 2], turned[:, 0]])
            zero = jnp.zeros((3, 3))
            seen = jnp.block([[cross(expected[:3]), zero], [cross(expected[3:]), zero]])
            spread = seen @ cov @ seen.T + noise[1] * jnp.eye(6)
            gain = jnp.linalg.solve(spread, seen @ cov).T
            change = gain @ (jnp.concatenate([down, north]) - expected)
            q = _quaternion_product(q, jnp.concatenate([jnp.ones(1), 0.5 * change[:3]]))
            q = q / jnp.linalg.norm(q)
            cov = (jnp.eye(6) - gain @ seen) @ cov
            return (q, bias + change[3:], 0.5 * (cov + cov.T)), q

        start = (jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), 0.1 * jnp.eye(6))
        (_, bias, cov), path = lax.scan(sample, start, (gyroscope, gravity, field))
        return path, bias, jnp.diag(cov)

    spin = 0.1 + 0.05 * normal(5, count, 3)
    down = jnp.array([0.0, 0.0, 1.0]) + 0.1 * normal(6, count, 3)
    north = jnp.array([1.0, 0.0, 0.0]) + 0.1 * normal(7, count, 3)
    return fn, (spin, down, north, jnp.asarray([1e-5, 1e-2]))


def _drive(x: Any, u: Any) -> Any:
    """A car after a tenth of a second: place, heading and speed."""
    heading, speed = x[2], x[3]
    turn = speed * jnp.tan(0.5 * jnp.tanh(u[0])) / 0.8
    change = jnp.stack([speed * jnp.cos(heading), speed * jnp.sin(heading), turn, u[1]])
    return x + 0.1 * change


def _drive_cost(x: Any, u: Any, goal: Any, stones: Any) -> Any:
    near = jnp.exp(-jnp.sum((x[:2] - stones) ** 2, -1) / 0.1)
    return 0.1 * jnp.sum((x - goal) ** 2) + 0.05 * jnp.sum(u**2) + 0.2 * near.sum()


def _sweep_back(xs: Any, us: Any, goal: Any, stones: Any) -> Any:
    """The gains of a quadratic approximation around a path."""

    def back(value: Any, point: Any) -> Any:
        p, s = value
        x, u = point
        a, b = jax.jacfwd(_drive, argnums=(0, 1))(x, u)
        qx, qu = jax.grad(_drive_cost, argnums=(0, 1))(x, u, goal, stones)
        (qxx, _), (_, quu) = jax.hessian(_drive_cost, argnums=(0, 1))(x, u, goal, stones)
        gx, gu = qx + a.T @ p, qu + b.T @ p
        hxx, huu, hux = qxx + a.T @ s @ a, quu + b.T @ s @ b, b.T @ s @ a
        huu = huu + 0.5 * jnp.eye(2)
        both = -jnp.linalg.solve(huu, jnp.concatenate([gu[:, None], hux], axis=1))
        k, gain = both[:, 0], both[:, 1:]
        s = hxx + gain.T @ huu @ gain + gain.T @ hux + hux.T @ gain
        p = gx + gain.T @ huu @ k + gain.T @ gu + hux.T @ k
        return (p, 0.5 * (s + s.T)), (k, gain)

    start = (2.0 * (xs[-1] - goal), 2.0 * jnp.eye(4))
    return lax.scan(back, start, (xs[:-1], us), reverse=True)[1]


def parking_plan() -> Program:
    """A path for a car among stones, by iterated linear-quadratic control with soft steps."""

    def fn(x0: Any, us: Any, goal: Any, stones: Any) -> Any:
        def forward(us: Any) -> Any:
            return lax.scan(lambda x, u: (_drive(x, u), x), x0, us)

        def improve(us: Any, _: Any) -> Any:
            last, xs = forward(us)
            xs = jnp.concatenate([xs, last[None]])
            k, gains = _sweep_back(xs, us, goal, stones)

            def step(x: Any, inputs: Any) -> Any:
                old, u, k, gain = inputs
                u = u + 0.5 * k + gain @ (x - old)
                return _drive(x, u), (u, _drive_cost(x, u, goal, stones))

            _, (us, costs) = lax.scan(step, x0, (xs[:-1], us, k, gains))
            return us, costs.sum()

        us, costs = lax.scan(improve, us, None, length=12)
        return us, costs, forward(us)[1]

    x0 = jnp.asarray([0.0, 0.0, 0.2, 0.5])
    goal = jnp.asarray([3.0, 1.0, 0.0, 0.0])
    stones = jnp.asarray([[1.0, 0.9], [2.4, 0.1], [1.8, 1.5]])
    return fn, (x0, 0.05 * normal(8, 64, 2), goal, stones)


def _sight(state: Any, index: Any) -> Any:
    """Where the robot would see a landmark."""
    place = lax.dynamic_slice(state, (3 + 2 * index,), (2,))
    gap = place - state[:2]
    c, s = jnp.cos(state[2]), jnp.sin(state[2])
    return jnp.stack([c * gap[0] + s * gap[1], c * gap[1] - s * gap[0]])


def _roll(state: Any, command: Any) -> Any:
    """The state after the robot rolls some way and turns."""
    heading = state[2] + 0.5 * command[1]
    change = jnp.stack([command[0] * jnp.cos(heading), command[0] * jnp.sin(heading)])
    return state.at[:2].add(change).at[2].add(command[1])


def _circling(places: Any, which: Any) -> tuple[Any, Any]:
    """Commands that drive in circles, and the sightings on the way."""
    commands = np.tile([0.1, 0.08], (which.size, 1))
    headings = np.cumsum(commands[:, 1])
    halfway = headings - 0.04
    path = np.cumsum(0.1 * np.stack([np.cos(halfway), np.sin(halfway)], 1), axis=0)
    gap = places[which] - path
    c, s = np.cos(headings), np.sin(headings)
    seen = np.stack([c * gap[:, 0] + s * gap[:, 1], c * gap[:, 1] - s * gap[:, 0]], axis=1)
    return commands, seen


def landmark_map() -> Program:
    """Pose of a robot and a map of landmarks by an extended Kalman filter, one sighting a step."""
    landmarks, steps = 48, 300
    size = 3 + 2 * landmarks

    def fn(guess: Any, moves: Any, which: Any, sightings: Any, noise: Any) -> Any:
        def step(carry: Any, inputs: Any) -> Any:
            state, cov = carry
            command, index, seen = inputs
            slope = jax.jacfwd(_roll)(state, command)
            state = _roll(state, command)
            cov = slope @ cov @ slope.T
            cov = cov.at[jnp.arange(3), jnp.arange(3)].add(noise[0])
            expected, view = _sight(state, index), jax.jacfwd(_sight)(state, index)
            spread = view @ cov @ view.T + noise[1] * jnp.eye(2)
            gain = cov @ view.T @ jnp.linalg.inv(spread)
            state = state + gain @ (seen - expected)
            cov = cov - gain @ view @ cov
            return (state, 0.5 * (cov + cov.T)), state[:3]

        start = jnp.concatenate([jnp.zeros(3), guess.reshape(-1)])
        cov = jnp.diag(jnp.where(jnp.arange(size) < 3, 1e-3, 0.1))
        (state, cov), path = lax.scan(step, (start, cov), (moves, which, sightings))
        return state, jnp.diag(cov), path

    places = 4 * np.asarray(uniform(9, landmarks, 2)) - np.array([2.0, 0.5])
    which = np.random.default_rng(10).integers(0, landmarks, steps)
    commands, seen = _circling(places, which)
    return fn, (
        jnp.asarray(places) + 0.2 * normal(11, landmarks, 2),
        jnp.asarray(commands) + 0.01 * normal(12, steps, 2),
        jnp.asarray(which, jnp.int32),
        jnp.asarray(seen) + 0.05 * normal(13, steps, 2),
        jnp.asarray([1e-4, 2.5e-3]),
    )


WORKLOADS: dict[str, Callable[[], Program]] = {
    "reach-targets": reach_targets,
    "swinging-arm": swinging_arm,
    "box-control": box_control,
    "attitude-filter": attitude_filter,
    "parking-plan": parking_plan,
    "landmark-map": landmark_map,
}
