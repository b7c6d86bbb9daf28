"""Robots, quadratic and linear programs, control and symbolic mechanics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def _sdf(n):
    """Description of a serial arm with the given number of revolute joints."""
    inertia = {"ixx": 0.004, "ixy": 0, "ixz": 0, "iyy": 0.004, "iyz": 0, "izz": 0.002}
    moments = "".join(f"<{k}>{v}</{k}>" for k, v in inertia.items())

    def inertial(pose, mass):
        return f"<inertial><pose>{pose}</pose><mass>{mass}</mass><inertia>{moments}</inertia></inertial>"

    limit = "<limit><lower>-3</lower><upper>3</upper><effort>100</effort><velocity>100</velocity></limit>"
    base = inertial("0 0 0 0 0 0", 1.0)
    segment = inertial("0 0 -0.15 0 0 0", 0.5)
    parts = [f"<link name='base'>{base}</link>"]
    for i in range(n):
        offset = 0 if i == 0 else -0.3
        axis = "1 0 0" if i % 2 else "0 1 0"
        parent = "base" if i == 0 else f"l{i - 1}"
        parts += [
            f"<joint name='j{i}' type='revolute'>",
            f"<pose relative_to='{parent}'>0 0 {offset} 0 0 0</pose>",
            f"<parent>{parent}</parent><child>l{i}</child>",
            f"<axis><xyz>{axis}</xyz>{limit}</axis></joint>",
            f"<link name='l{i}'><pose relative_to='j{i}'>0 0 0 0 0 0</pose>",
            f"{segment}</link>",
        ]
    body = "".join(parts)
    return f"<sdf version='1.10'><model name='arm' canonical_link='base'>{body}</model></sdf>"


def _jaxsim(n):
    """Model and initial state of a serial arm with the given number of joints."""
    import jaxsim
    import jaxsim.api as js

    jaxsim.logging.set_logging_level(jaxsim.logging.LoggingLevel.ERROR)
    model = js.model.JaxSimModel.build_from_model_description(
        _sdf(n), is_urdf=False, time_step=0.001
    )
    data = js.data.JaxSimModelData.build(
        model=model,
        base_position=jnp.array([0.0, 0.0, 3.0]),
        joint_positions=jnp.linspace(0.1, 0.4, model.dofs()),
    )
    return model, data


def jaxsim_serial_arm_free_dynamics() -> Program:
    """Ten steps of a free-floating arm with six joints, and its momentum."""
    import jaxsim.api as js

    model, data = _jaxsim(6)

    def run(data, tau):
        def step(d, _):
            d = js.model.step(model, d, joint_force_references=tau)
            return d, d.joint_positions

        d, q = jax.lax.scan(step, data, None, 10)
        return q, d.base_position, js.model.total_momentum(model, d)

    return run, (data, jnp.zeros(6) + 0.05)


def jaxsim_mass_matrix_jacobians() -> Program:
    """Mass matrices, bias forces and centres of mass in 32 poses of an arm."""
    import jaxsim.api as js

    model, data = _jaxsim(6)

    def run(data, q):
        def one(q):
            d = data.replace(model=model, joint_positions=q)
            return (
                js.model.free_floating_mass_matrix(model, d),
                js.model.free_floating_bias_forces(model, d),
                js.com.com_position(model, d),
            )

        return jax.vmap(one)(q)

    return run, (data, jnp.asarray(np.random.default_rng(110).uniform(-1, 1, (32, 6)), jnp.float32))


def qpax_mpc_batch() -> Program:
    """Eight quadratic programs, and the gradient of their solutions."""
    import qpax

    rng = np.random.default_rng(111)
    n, m, p, B = 20, 30, 6, 8
    L = rng.normal(size=(B, n, n))
    Q = jnp.asarray(L @ L.transpose(0, 2, 1) / n + np.eye(n))
    q = jnp.asarray(rng.normal(size=(B, n)))
    A = jnp.asarray(rng.normal(size=(B, p, n)))
    G = jnp.asarray(rng.normal(size=(B, m, n)))
    x = rng.normal(size=(B, n))
    b = jnp.einsum("bij,bj->bi", A, x)
    h = jnp.einsum("bij,bj->bi", G, x) + 1.0

    def run(Q, q, A, b, G, h):
        def f(q):
            return jax.vmap(lambda *a: qpax.solve_qp_primal(*a))(Q, q, A, b, G, h)

        return jax.value_and_grad(lambda q: (f(q) ** 2).sum())(q)

    return run, (Q, q, A, b, G, h)


def mpax_transport_lp() -> Program:
    """A transport problem solved by a first-order method for linear programs."""
    from mpax import create_lp, raPDHG

    rng = np.random.default_rng(112)
    m, n = 20, 30
    c = jnp.asarray(rng.uniform(1, 5, m * n))
    s = rng.uniform(5, 8, m)
    d = rng.uniform(1, 2.5, n)
    A = jnp.asarray(np.kron(np.ones((1, m)), np.eye(n)))
    G = jnp.asarray(-np.kron(np.eye(m), np.ones((1, n))))

    def run(c, A, b, G, h):
        lp = create_lp(
            c, A, b, G, h, jnp.zeros(m * n), jnp.full(m * n, 1e3), use_sparse_matrix=False
        )
        res = raPDHG(eps_abs=1e-5, eps_rel=1e-5, iteration_limit=4000).optimize(lp)
        return res.primal_solution, res.primal_objective

    return run, (c, A, jnp.asarray(d), G, jnp.asarray(-s))


def dynamaxsys_unicycle_batch_rollout_grad() -> Program:
    """Costs of 64 unicycle paths, and their gradient in the controls."""
    from dynamaxsys.unicycle import Unicycle

    dyn = Unicycle()
    u = jnp.asarray(np.random.default_rng(113).normal(size=(64, 30, 2)) * 0.3, jnp.float32)

    def run(u):
        def cost(u):
            def step(x, u):
                k1 = dyn(x, u, 0.0)
                x = x + 0.1 * dyn(x + 0.05 * k1, u, 0.0)
                return x, x

            xs = jax.lax.scan(step, jnp.zeros(3), u)[1]
            return (xs[-1, :2] - 1.0) @ (xs[-1, :2] - 1.0) + 0.01 * (u**2).sum()

        return jax.value_and_grad(lambda u: jax.vmap(cost)(u).sum())(u)

    return run, (u,)


def sympy2jax_lagrangian_pendulum() -> Program:
    """Fifty steps of 256 double pendulums from symbolic equations of motion."""
    import equinox as eqx
    import sympy as sp
    import sympy2jax

    a, b, p, q = sp.symbols("a b p q")
    denominator = 16 - 9 * sp.cos(a - b) ** 2
    da = 6 * (2 * p - 3 * sp.cos(a - b) * q) / denominator
    db = 6 * (8 * q - 3 * sp.cos(a - b) * p) / denominator
    dp = -(da * db * sp.sin(a - b) + 3 * sp.sin(a)) / 2
    dq = -(-da * db * sp.sin(a - b) + sp.sin(b)) / 2
    mod = sympy2jax.SymbolicModule([da, db, dp, dq, sp.diff(dp, a)])
    params, static = eqx.partition(mod, eqx.is_array)

    def run(x0):
        m = static if not jax.tree.leaves(params) else eqx.combine(params, static)

        def f(x):
            return jnp.stack(m(a=x[0], b=x[1], p=x[2], q=x[3])[:4])

        def step(x, _):
            k1 = f(x)
            k2 = f(x + 0.01 * k1)
            return x + 0.01 * (k1 + k2), x

        return jax.vmap(lambda x: jax.lax.scan(step, x, None, 50)[0])(x0)

    return run, (jnp.asarray(np.random.default_rng(114).uniform(-0.5, 0.5, (256, 4)), jnp.float32),)


WORKLOADS: dict[str, Builder] = {
    "dynamaxsys-unicycle-batch-rollout-grad": dynamaxsys_unicycle_batch_rollout_grad,
    "sympy2jax-lagrangian-pendulum": sympy2jax_lagrangian_pendulum,
}

WORKLOADS_X64: dict[str, Builder] = {
    "jaxsim-serial-arm-free-dynamics": jaxsim_serial_arm_free_dynamics,
    "jaxsim-mass-matrix-jacobians": jaxsim_mass_matrix_jacobians,
    "qpax-mpc-batch": qpax_mpc_batch,
    "mpax-transport-lp": mpax_transport_lp,
}
