"""Differential equations, roots, minima, linear systems and transport."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, normal, uniform


def diffrax_bouncing_ball_event_grad() -> Program:
    """Time at which each of 16 dropped balls hits the ground, by an event, with its gradient."""
    import diffrax
    import optimistix as optx

    def field(t: Any, y: Any, drag: jax.Array) -> Any:
        del t
        _, v = y
        return v, -9.8 - drag * v * jnp.abs(v)

    def hit(height: jax.Array, drag: jax.Array) -> jax.Array:
        event = diffrax.Event(lambda t, y, args, **kw: y[0], optx.Newton(1e-4, 1e-4))
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            10.0,
            0.1,
            (height, jnp.float32(0.0)),
            args=drag,
            event=event,
            max_steps=64,
            throw=False,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
        )
        return solution.ts[0]

    def loss(heights: jax.Array, drag: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(hit, (0, None))(heights, drag))

    return jax.value_and_grad(loss, argnums=(0, 1)), (5.0 + 5 * uniform(0, 16), jnp.float32(0.1))


def diffrax_neural_sde_generator() -> Program:
    """Paths of an Ito neural SDE (Euler, MLP drift and diffusion) and gradient of moments."""
    import diffrax
    import equinox as eqx

    k1, k2 = jax.random.split(jax.random.PRNGKey(0))
    drift = eqx.nn.MLP(5, 4, 32, 1, jax.nn.silu, jnp.tanh, key=k1)
    noise = eqx.nn.MLP(5, 8, 32, 1, jax.nn.silu, jnp.tanh, key=k2)
    params, static = eqx.partition((drift, noise), eqx.is_inexact_array)

    def loss(params: Any, y0: jax.Array, keys: jax.Array) -> jax.Array:
        drift, noise = eqx.combine(params, static)

        def path(y0: jax.Array, key: jax.Array) -> jax.Array:
            brownian = diffrax.VirtualBrownianTree(0.0, 1.0, tol=0.025, shape=(2,), key=key)
            terms = diffrax.MultiTerm(
                diffrax.ODETerm(lambda t, y, _: drift(jnp.append(y, t))),
                diffrax.ControlTerm(
                    lambda t, y, _: noise(jnp.append(y, t)).reshape(4, 2), brownian
                ),
            )
            return diffrax.diffeqsolve(
                terms,
                diffrax.Euler(),
                0.0,
                1.0,
                0.05,
                y0,
                max_steps=21,
                saveat=diffrax.SaveAt(steps=True),
            ).ys

        ys = jax.vmap(path)(y0, keys)[:, :20]
        return jnp.mean(jnp.mean(ys, 0) ** 2) + jnp.mean((jnp.var(ys, 0) - 1.0) ** 2)

    return jax.value_and_grad(loss), (
        params,
        normal(1, 64, 4),
        jax.random.split(jax.random.PRNGKey(2), 64),
    )


def optimistix_fixed_point_heat_equation() -> Program:
    """Implicit steps of a nonlinear heat equation by a Chord root find, 5 steps of 64 cells."""
    import optimistix as optx

    def run(y: jax.Array, dt: jax.Array) -> Any:
        def field(y: jax.Array) -> jax.Array:
            padded = jnp.pad(y, 1, mode="edge")
            return 20.0 * (padded[2:] - 2 * y + padded[:-2]) - y**3

        solver = optx.Chord(rtol=1e-4, atol=1e-4)

        def step(y: jax.Array, _: None) -> Any:
            def fn(z: jax.Array, y0: jax.Array) -> jax.Array:
                return z - y0 - 0.5 * dt * (field(z) + field(y0))

            sol = optx.root_find(fn, solver, y, y, max_steps=16, throw=False)
            return sol.value, (sol.value, sol.stats["num_steps"])

        return jax.lax.scan(step, y, None, length=5)[1]

    return run, (jnp.sin(jnp.linspace(0, 6, 64)) + 0.1 * normal(0, 64), jnp.float32(0.05))


def optimistix_lbfgs_logistic_bounded() -> Program:
    """Multinomial regression by L-BFGS and by nonlinear conjugate gradients, 20 steps each."""
    import optimistix as optx

    def loss(w: Any, args: Any) -> jax.Array:
        x, y = args
        logits = x @ w["w"] + w["b"]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -jnp.mean(picked) + 1e-3 * jnp.sum(w["w"] ** 2)

    def fit(w: Any, x: jax.Array, y: jax.Array) -> Any:
        out = []
        for solver in (optx.LBFGS(1e-6, 1e-6), optx.NonlinearCG(1e-6, 1e-6)):
            sol = optx.minimise(loss, solver, w, (x, y), max_steps=20, throw=False)
            out.append(sol.value)
        return out, loss(out[0], (x, y)), loss(out[1], (x, y))

    x = normal(0, 300, 12)
    y = (x @ normal(1, 12, 4)).argmax(-1)
    return fit, ({"w": jnp.zeros((12, 4)), "b": jnp.zeros(4)}, x, y)


def lineax_tridiagonal_implicit_diffusion() -> Program:
    """Crank-Nicolson diffusion with a tridiagonal operator and variable conductivity, 30 steps, grad."""
    import lineax as lx

    def loss(log_k: jax.Array, u: jax.Array, wanted: jax.Array) -> jax.Array:
        k = jnp.exp(log_k)
        dt = 0.2
        left, right = jnp.append(0.0, k), jnp.append(k, 0.0)
        diag = left + right
        op = lx.TridiagonalLinearOperator(1 + 0.5 * dt * diag, -0.5 * dt * k, -0.5 * dt * k)
        rhs_op = lx.TridiagonalLinearOperator(1 - 0.5 * dt * diag, 0.5 * dt * k, 0.5 * dt * k)

        def step(u: jax.Array, _: None) -> Any:
            u = lx.linear_solve(op, rhs_op.mv(u), lx.Tridiagonal(), throw=False).value
            return u, u

        return jnp.mean((jax.lax.scan(step, u, None, length=30)[0] - wanted) ** 2)

    grid = jnp.linspace(0, 1, 128)
    return jax.value_and_grad(loss), (
        0.1 * normal(0, 127),
        jnp.exp(-50 * (grid - 0.5) ** 2),
        0.2 + 0 * grid,
    )


def lineax_cg_ridge_hessian_newton() -> Program:
    """Newton steps of a GLM, each Hessian solve by CG with a Jacobi preconditioner, and a BiCGStab solve."""
    import lineax as lx

    def run(w: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            eta = x @ w
            return jnp.mean(jnp.exp(eta) - y * eta) + 0.05 * jnp.sum(w**2)

        def step(w: jax.Array, _: None) -> Any:
            grad = jax.grad(loss)(w)
            op = lx.FunctionLinearOperator(
                lambda v: jax.jvp(jax.grad(loss), (w,), (v,))[1], w, lx.positive_semidefinite_tag
            )
            pre = lx.DiagonalLinearOperator(
                1.0 / (jnp.mean(jnp.exp(x @ w)[:, None] * x**2, 0) + 0.1)
            )
            pre = lx.TaggedLinearOperator(pre, lx.positive_semidefinite_tag)
            sol = lx.linear_solve(
                op,
                grad,
                lx.CG(1e-5, 1e-5, max_steps=30),
                options={"preconditioner": pre},
                throw=False,
            )
            return w - sol.value, loss(w)

        w, losses = jax.lax.scan(step, w, None, length=5)
        general = lx.MatrixLinearOperator(jnp.eye(60) * 4 + 0.1 * x[:60, :60])
        other = lx.linear_solve(
            general, w, lx.BiCGStab(1e-5, 1e-5, max_steps=40), throw=False
        ).value
        return w, losses, other

    x = 0.3 * normal(0, 400, 60)
    y = jax.random.poisson(jax.random.PRNGKey(1), jnp.exp(0.5 * x[:, 0])).astype(jnp.float32)
    return run, (jnp.zeros(60), x, y)


def jaxopt_anderson_deep_equilibrium() -> Program:
    """Deep equilibrium model of the docs: fixed point by Anderson acceleration, implicit gradient."""
    import jaxopt

    def cell(z: jax.Array, x: jax.Array, params: Any) -> jax.Array:
        h = jax.nn.relu(z @ params["w1"] + x @ params["u"])
        return jnp.tanh(0.5 * (h @ params["w2"]) + z * 0.1)

    solver = jaxopt.AndersonAcceleration(
        cell, history_size=5, maxiter=15, tol=1e-4, ridge=1e-5, implicit_diff=True, jit=True
    )

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        z = solver.run(jnp.zeros((x.shape[0], 32)), x, params).params
        logits = z @ params["out"]
        return jnp.mean(jax.vmap(jaxopt.loss.multiclass_logistic_loss)(y, logits))

    params = {
        "w1": 0.1 * normal(0, 32, 64),
        "w2": 0.1 * normal(1, 64, 32),
        "u": 0.2 * normal(2, 20, 64),
        "out": 0.2 * normal(3, 32, 10),
    }
    y = jax.random.randint(jax.random.PRNGKey(4), (64,), 0, 10)
    return jax.value_and_grad(loss), (params, normal(5, 64, 20), y)


def jaxopt_mirror_descent_svm_dual() -> Program:
    """Multiclass SVM dual by mirror descent on simplices, and a bounded L-BFGS fit."""
    import jaxopt
    from jaxopt import projection

    def objective(beta: jax.Array, lam: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        dual = x.T @ (y - beta) / lam
        return 0.5 * lam * jnp.vdot(dual, dual) + jnp.vdot(beta, 1 - y)

    grid = projection.projection_simplex
    mirror = jaxopt.MirrorDescent(
        fun=objective,
        projection_grad=jaxopt.MirrorDescent.make_projection_grad(
            lambda y, _: jax.vmap(jax.nn.softmax)(y), lambda x: jnp.log(jnp.maximum(x, 1e-12))
        ),
        maxiter=30,
        stepsize=0.01,
        implicit_diff=False,
    )
    bounded = jaxopt.LBFGSB(
        fun=lambda w, x, t: jnp.mean((x @ w - t) ** 2), maxiter=10, history_size=5
    )

    def fit(beta: jax.Array, lam: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        beta = mirror.run(beta, None, lam, x, y).params
        w = bounded.run(jnp.full(16, 0.1), (jnp.zeros(16), jnp.ones(16)), x, y[:, 0]).params
        return beta, x.T @ (y - beta) / lam, w, jax.vmap(grid)(x @ (x.T @ (y - beta)))

    x = normal(0, 100, 16)
    y = jax.nn.one_hot((x @ normal(1, 16, 5)).argmax(-1), 5)
    return fit, (jnp.full((100, 5), 0.2), jnp.float32(10.0), x, y)


def ott_wasserstein_barycenter() -> Program:
    """Discrete barycentre of four histograms on a grid of 20 x 20, separable kernel."""
    from ott.geometry import grid
    from ott.problems.linear import barycenter_problem
    from ott.solvers.linear import discrete_barycenter

    def barycenter(a: jax.Array, weights: jax.Array) -> Any:
        geometry = grid.Grid(grid_size=(20, 20), epsilon=1e-2)
        problem = barycenter_problem.FixedBarycenterProblem(geometry, a, weights=weights)
        solver = discrete_barycenter.FixedBarycenter(max_iterations=30, threshold=1e-5)
        return solver(problem).histogram

    a = jax.nn.softmax(3 * normal(0, 4, 400), axis=-1)
    return barycenter, (a, jnp.array([0.1, 0.2, 0.3, 0.4]))


def ott_point_cloud_gradient_flow() -> Program:
    """Gradient flow of a point cloud towards another under the Sinkhorn divergence, 4 steps."""
    from ott.geometry import costs, pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import acceleration, sinkhorn

    solver = sinkhorn.Sinkhorn(
        max_iterations=50, threshold=1e-2, momentum=acceleration.Momentum(start=20)
    )

    def flow(x: jax.Array, y: jax.Array) -> Any:
        def cost(x: jax.Array) -> jax.Array:
            geom = pointcloud.PointCloud(x, y, cost_fn=costs.PNormP(1.5), epsilon=0.1)
            return solver(linear_problem.LinearProblem(geom)).reg_ot_cost

        def step(x: jax.Array, _: None) -> Any:
            value, grad = jax.value_and_grad(cost)(x)
            return x - 10.0 * grad, value

        return jax.lax.scan(step, x, None, length=4)

    return flow, (normal(0, 100, 2), 2.0 + normal(1, 120, 2))


def tree_math_cg_on_trees() -> Program:
    """Conjugate gradients written with tree_math vectors for a regression with two groups of weights."""
    import tree_math as tm
    import tree_math.numpy as tnp

    def solve(x: Any, target: Any) -> Any:
        def matvec(w: Any) -> Any:
            pred = x["a"] @ w["a"] + x["b"] @ w["b"]
            return {"a": x["a"].T @ pred + w["a"], "b": x["b"].T @ pred + w["b"]}

        op = tm.unwrap(matvec, vector_argnums=0)
        rhs = tm.Vector({"a": x["a"].T @ target, "b": x["b"].T @ target})
        w = tnp.zeros_like(rhs)

        def body(carry: Any, _: None) -> Any:
            w, r, p = carry
            ap = op(p)
            alpha = (r @ r) / (p @ ap)
            w2, r2 = w + alpha * p, r - alpha * ap
            beta = (r2 @ r2) / (r @ r)
            return (w2, r2, r2 + beta * p), r2 @ r2

        (w, _, _), errors = jax.lax.scan(body, (w, rhs, rhs), None, length=15)
        return w.tree, errors

    return solve, ({"a": normal(0, 200, 30), "b": normal(1, 200, 10)}, normal(2, 200))


WORKLOADS: dict[str, Builder] = {
    "diffrax-falling-balls-event-grad": diffrax_bouncing_ball_event_grad,
    "diffrax-neural-sde-moments-grad": diffrax_neural_sde_generator,
    "optimistix-chord-heat-steps": optimistix_fixed_point_heat_equation,
    "optimistix-lbfgs-cg-softmax-fit": optimistix_lbfgs_logistic_bounded,
    "lineax-tridiagonal-diffusion-grad": lineax_tridiagonal_implicit_diffusion,
    "lineax-cg-newton-poisson": lineax_cg_ridge_hessian_newton,
    "jaxopt-anderson-equilibrium-grad": jaxopt_anderson_deep_equilibrium,
    "jaxopt-mirror-svm-bounded-fit": jaxopt_mirror_descent_svm_dual,
    "ott-grid-barycenter": ott_wasserstein_barycenter,
    "ott-cloud-gradient-flow": ott_point_cloud_gradient_flow,
    "tree-math-conjugate-gradient": tree_math_cg_on_trees,
}
