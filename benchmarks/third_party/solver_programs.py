"""Solvers and simulators: stiff and stochastic equations, transport, optimizers, particles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, mlp_apply, mlp_params, normal, uniform


def diffrax_kencarp4_grad() -> Program:
    """Gradients through implicit-explicit integration of oscillators, with a Newton solve in every stage."""
    import diffrax

    def linear(t: Any, y: jax.Array, mu: jax.Array) -> jax.Array:
        del t, mu
        return jnp.stack([y[1], -y[0]])

    def damping(t: Any, y: jax.Array, mu: jax.Array) -> jax.Array:
        del t
        return jnp.stack([0.0 * y[0], mu * (1 - y[0] ** 2) * y[1]])

    def solve(y0: jax.Array, mu: jax.Array) -> Any:
        return diffrax.diffeqsolve(
            diffrax.MultiTerm(diffrax.ODETerm(linear), diffrax.ODETerm(damping)),
            diffrax.KenCarp4(),
            0.0,
            1.0,
            0.05,
            y0,
            args=mu,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 4)),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
            max_steps=40,
            throw=False,
        ).ys

    def loss(y0: jax.Array, mu: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(solve)(y0, mu) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1)), (normal(0, 7, 2), 1.0 + uniform(1, 7))


def diffrax_robertson() -> Program:
    """A stiff chemical network by an implicit method with adaptive steps, sixteen rate constants."""
    import diffrax

    def field(t: jax.Array, y: jax.Array, rates: jax.Array) -> jax.Array:
        first, second = rates[0] * y[0], rates[1] * y[1] * y[2]
        third = rates[2] * y[1] ** 2
        return jnp.stack([-first + second, first - second - third, third])

    def solve(rates: jax.Array, y0: jax.Array) -> jax.Array:
        def one(rates: jax.Array) -> jax.Array:
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                diffrax.Kvaerno3(),
                0.0,
                2.0,
                1e-3,
                y0,
                args=rates,
                stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
                saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 9)),
                max_steps=64,
                throw=False,
            )
            return solution.ys

        return jax.vmap(one)(rates)

    rates = jnp.array([0.4, 1.0, 30.0]) * (0.5 + uniform(0, 16, 3))
    return solve, (rates, jnp.array([1.0, 0.0, 0.0]))


def diffrax_backsolve() -> Program:
    """Gradient through a neural equation by the continuous adjoint, Dormand-Prince of order eight."""
    import diffrax

    def loss(params: Any, y0: jax.Array, wanted: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: jnp.tanh(mlp_apply(p, y))),
            diffrax.Dopri8(),
            0.0,
            1.0,
            0.1,
            y0,
            args=params,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 5)),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
            adjoint=diffrax.BacksolveAdjoint(),
            max_steps=32,
            throw=False,
        )
        return jnp.mean(jnp.square(solution.ys - wanted))

    params = mlp_params(0, (6, 40, 6))
    return jax.value_and_grad(loss), (params, normal(1, 24, 6), normal(2, 5, 24, 6))


def diffrax_brownian_tree() -> Program:
    """Paths of a stochastic equation with additive noise, by a Runge-Kutta method on a Brownian tree."""
    import diffrax

    def paths(y0: jax.Array, keys: jax.Array) -> jax.Array:
        def path(y0: jax.Array, key: jax.Array) -> jax.Array:
            noise = diffrax.VirtualBrownianTree(
                0.0, 1.0, tol=2**-8, shape=(3,), key=key, levy_area=diffrax.SpaceTimeLevyArea
            )
            terms = diffrax.MultiTerm(
                diffrax.ODETerm(lambda t, y, _: y - y**3 - 0.3 * jnp.roll(y, 1)),
                diffrax.ControlTerm(lambda t, y, _: 0.4 * jnp.eye(3), noise),
            )
            saved = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 11))
            return diffrax.diffeqsolve(
                terms, diffrax.ShARK(), 0.0, 1.0, 1 / 32, y0, saveat=saved
            ).ys

        return jax.vmap(path)(y0, keys)

    return paths, (normal(0, 20, 3), jax.random.split(jax.random.PRNGKey(1), 20))


def diffrax_controlled() -> Program:
    """Gradient of a classifier of irregular series by a neural controlled equation."""
    import diffrax

    def logits(params: Any, times: jax.Array, series: jax.Array) -> jax.Array:
        coefficients = diffrax.backward_hermite_coefficients(times, series)
        control = diffrax.CubicInterpolation(times, coefficients)

        def field(t: jax.Array, y: jax.Array, _: None) -> jax.Array:
            return jnp.tanh(mlp_apply(params["field"], y)).reshape(8, 3)

        solution = diffrax.diffeqsolve(
            diffrax.ControlTerm(field, control).to_ode(),
            diffrax.Heun(),
            times[0],
            times[-1],
            times[1] - times[0],
            mlp_apply(params["start"], series[0]),
            max_steps=128,
        )
        assert solution.ys is not None
        return mlp_apply(params["end"], solution.ys[-1])[0]

    def loss(params: Any, times: jax.Array, series: jax.Array, labels: jax.Array) -> jax.Array:
        import optax

        out = jax.vmap(logits, (None, None, 0))(params, times, series)
        return optax.sigmoid_binary_cross_entropy(out, labels).mean()

    params = {
        "field": mlp_params(0, (8, 32, 24)),
        "start": mlp_params(3, (3, 8)),
        "end": mlp_params(4, (8, 1)),
    }
    times = jnp.linspace(0.0, 4.0, 33)
    series = jnp.cumsum(0.3 * normal(5, 16, 33, 3), axis=1).at[..., 0].set(times)
    labels = (uniform(6, 16) > 0.5).astype(jnp.float32)
    return jax.value_and_grad(loss), (params, times, series, labels)


def ott_low_rank() -> Program:
    """Low-rank transport between two clouds of two hundred points."""
    from ott.geometry import pointcloud
    from ott.initializers.linear import initializers_lr
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn_lr

    def transport(x: jax.Array, y: jax.Array) -> Any:
        start = initializers_lr.Rank2Initializer(rank=6)
        solver = sinkhorn_lr.LRSinkhorn(rank=6, max_iterations=20, initializer=start)
        out = solver(linear_problem.LinearProblem(pointcloud.PointCloud(x, y)))
        return out.q, out.g, out.costs

    return transport, (normal(0, 200, 3), 1.0 + normal(1, 210, 3))


def ott_unbalanced_divergence() -> Program:
    """Gradient of the unbalanced transport divergence between weighted clouds."""
    from ott.geometry import pointcloud
    from ott.tools import sinkhorn_divergence

    def loss(x: jax.Array, y: jax.Array, a: jax.Array) -> jax.Array:
        value, _ = sinkhorn_divergence.sinkhorn_divergence(
            pointcloud.PointCloud,
            x,
            y,
            a=a / a.sum(),
            epsilon=0.1,
            solve_kwargs={"tau_a": 0.9, "tau_b": 0.95, "max_iterations": 60, "min_iterations": 60},
        )
        return value

    return jax.value_and_grad(loss), (normal(0, 90, 2), normal(1, 110, 2), 0.5 + uniform(2, 90))


def ott_soft_sort() -> Program:
    """Differentiable largest values and ranks of many rows."""
    from ott.tools import soft_sort

    def sort(x: jax.Array) -> Any:
        largest = soft_sort.sort(x, axis=-1, topk=5, epsilon=1e-1)
        return largest, soft_sort.ranks(x[:8], axis=-1, epsilon=1e-1)

    return sort, (normal(0, 24, 40),)


def optax_schedule_free() -> Program:
    """Steps of schedule-free Adam, Prodigy and sharpness-aware minimisation side by side."""
    import optax
    from optax import contrib

    optimizers = [
        contrib.schedule_free_adamw(1e-2, warmup_steps=4),
        contrib.prodigy(0.1),
        contrib.sam(optax.sgd(1e-2), optax.chain(contrib.normalize(), optax.sgd(0.05))),
        contrib.ademamix(1e-3),
    ]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(jax.vmap(mlp_apply, (None, 0))(params, x) - y))

    def train(params: Any, states: Any, x: jax.Array, y: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            news = []
            for optimizer, (params, state) in zip(optimizers, carry, strict=True):
                grads = jax.grad(loss)(params, x, y)
                updates, state = optimizer.update(grads, state, params)
                news.append((optax.apply_updates(params, updates), state))
            return news, [loss(params, x, y) for params, _ in news]

        carry = [(params, state) for state in states]
        return jax.lax.scan(step, carry, length=6)[1]

    params = mlp_params(0, (9, 48, 48, 2))
    states = [optimizer.init(params) for optimizer in optimizers]
    return train, (params, as_arrays(states), normal(5, 100, 9), normal(6, 100, 2))


def jaxopt_sparse_coding() -> Program:
    """Accelerated proximal gradients on a lasso, with the gradient of its solution, and a dual problem."""
    import jaxopt

    solver = jaxopt.ProximalGradient(
        lambda w, x, y: 0.5 * jnp.mean(jnp.square(x @ w - y)),
        jaxopt.prox.prox_elastic_net,
        maxiter=60,
        tol=1e-5,
        jit=True,
    )
    qp = jaxopt.BoxCDQP(maxiter=20)

    def loss(strength: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        weights = solver.run(jnp.zeros(x.shape[1]), (strength, 0.1), x, y).params
        gram = x.T @ x / x.shape[0]
        box = qp.run(
            jnp.zeros(x.shape[1]), (gram, -x.T @ y / x.shape[0]), (jnp.zeros(30), jnp.ones(30))
        )
        return jnp.sum(jnp.square(weights)), box.params

    x = normal(0, 80, 30)
    return jax.value_and_grad(loss, has_aux=True), (jnp.float32(0.05), x, x[:, 0] - x[:, 3])


def optimistix_batched_minima() -> Program:
    """Minima of twelve Rosenbrock functions by a quasi-Newton method, dogleg and Nelder-Mead."""
    import optimistix as optx

    def residuals(y: jax.Array, scale: jax.Array) -> jax.Array:
        return jnp.concatenate([scale * (y[1:] - y[:-1] ** 2), 1 - y[:-1]])

    def minima(start: jax.Array, scale: jax.Array) -> Any:
        def one(y: jax.Array, scale: jax.Array) -> Any:
            bfgs = optx.BFGS(rtol=1e-3, atol=1e-3)
            first = optx.minimise(
                lambda y, s: jnp.sum(residuals(y, s) ** 2),
                bfgs,
                y,
                scale,
                max_steps=12,
                throw=False,
            )
            dogleg = optx.Dogleg(rtol=1e-3, atol=1e-3)
            second = optx.least_squares(residuals, dogleg, y, scale, max_steps=8, throw=False)
            return first.value, second.value

        return jax.vmap(one)(start, scale)

    return minima, (0.3 * normal(0, 12, 4), 1 + 2 * uniform(1, 12))


def jax_md_langevin() -> Program:
    """Steps of a soft-sphere fluid in two species: minimisation, then a Langevin thermostat."""
    from jax_md import energy, minimize, simulate, space

    displacement, shift = space.periodic(9.0)
    species = jnp.arange(64) % 2
    potential = energy.soft_sphere_pair(
        displacement, species=species, sigma=jnp.array([[1.0, 1.1], [1.1, 1.3]])
    )
    descend_init, descend = minimize.fire_descent(potential, shift)
    init, apply = simulate.nvt_langevin(potential, shift, dt=0.01, kT=0.1, gamma=0.5)

    def run(position: jax.Array, key: jax.Array) -> Any:
        state = jax.lax.fori_loop(0, 20, lambda _, s: descend(s), descend_init(position))
        thermal = jax.lax.fori_loop(0, 10, lambda _, s: apply(s), init(key, state.position))
        return state.position, thermal.position, potential(thermal.position)

    return run, (9.0 * uniform(0, 64, 2), jax.random.PRNGKey(1))


def jax_cfd_spectral() -> Program:
    """Steps of forced two-dimensional turbulence in Fourier space, implicit diffusion."""
    import jax_cfd.base as cfd
    from jax_cfd import spectral

    grid = cfd.grids.Grid((48, 48), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))
    step = spectral.time_stepping.crank_nicolson_rk4(
        spectral.equations.ForcedNavierStokes2D(1e-2, grid, smooth=True), 5e-3
    )

    def run(vorticity: jax.Array) -> jax.Array:
        state = jnp.fft.rfftn(vorticity)
        state = jax.lax.fori_loop(0, 4, lambda _, s: step(s), state)
        return jnp.fft.irfftn(state)

    return run, (normal(0, 48, 48),)


WORKLOADS: dict[str, Builder] = {
    "diffrax-robertson-kvaerno3": diffrax_robertson,
    "diffrax-kencarp4-grad": diffrax_kencarp4_grad,
    "diffrax-backsolve-grad": diffrax_backsolve,
    "diffrax-brownian-tree": diffrax_brownian_tree,
    "diffrax-controlled-grad": diffrax_controlled,
    "ott-low-rank": ott_low_rank,
    "ott-unbalanced-divergence-grad": ott_unbalanced_divergence,
    "ott-soft-sort": ott_soft_sort,
    "optax-contrib-steps": optax_schedule_free,
    "jaxopt-sparse-coding-grad": jaxopt_sparse_coding,
    "optimistix-batched-minima": optimistix_batched_minima,
    "jax_md-fire-langevin": jax_md_langevin,
    "jax-cfd-spectral-turbulence": jax_cfd_spectral,
}
