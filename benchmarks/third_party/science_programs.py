"""Differential equations, solvers, optimal transport, cosmology, molecules and neurons."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, mlp_apply, mlp_params, normal


def diffrax_tsit5_lorenz() -> Program:
    """Short adaptive integration of a batch of Lorenz trajectories with dense output times."""
    import diffrax

    def field(t: Any, y: jax.Array, args: jax.Array) -> jax.Array:
        del t
        sigma, rho, beta = args
        return jnp.array(
            [sigma * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - beta * y[2]]
        )

    def solve(y0: jax.Array, params: jax.Array) -> jax.Array:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            0.5,
            0.01,
            y0,
            args=params,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 0.5, 11)),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-5),
            throw=False,
        ).ys

    batch = 1.0 + 0.1 * normal(0, 32, 3)
    return jax.vmap(solve, in_axes=(0, None)), (batch, jnp.array([10.0, 28.0, 8.0 / 3.0]))


def diffrax_kvaerno5_van_der_pol() -> Program:
    """Implicit integration of a batch of stiff oscillators with a Newton solve in every stage."""
    import diffrax

    def field(t: Any, y: jax.Array, mu: jax.Array) -> jax.Array:
        del t
        return jnp.array([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    def solve(y0: jax.Array, mu: jax.Array) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Kvaerno5(),
            0.0,
            1.0,
            0.05,
            y0,
            args=mu,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
            max_steps=256,
            throw=False,
        )
        return solution.ys

    y0 = jnp.array([2.0, 0.0]) + 0.1 * normal(0, 8, 2)
    return jax.vmap(solve), (y0, jnp.linspace(5.0, 20.0, 8))


def diffrax_neural_ode_grad() -> Program:
    """Gradient through a neural differential equation with checkpointed steps."""
    import diffrax

    def loss(params: Any, y0: jax.Array, target: jax.Array) -> jax.Array:
        def solve(y0: jax.Array) -> jax.Array:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, p: mlp_apply(p, jnp.append(y, t))),
                diffrax.Heun(),
                0.0,
                1.0,
                0.1,
                y0,
                args=params,
                max_steps=16,
                throw=False,
            ).ys[-1]

        return jnp.mean((jax.vmap(solve)(y0) - target) ** 2)

    args = (mlp_params(0, (5, 32, 32, 4)), normal(9, 16, 4), normal(10, 16, 4))
    return jax.value_and_grad(loss), args


def diffrax_sde_euler_heun() -> Program:
    """Stochastic differential equation driven by a virtual Brownian tree."""
    import diffrax

    def solve(key: jax.Array, y0: jax.Array) -> jax.Array:
        brownian = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(3,), key=key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, args: -y),
            diffrax.ControlTerm(lambda t, y, args: 0.3 * jnp.diag(jnp.cos(y)), brownian),
        )
        return diffrax.diffeqsolve(
            terms, diffrax.EulerHeun(), 0.0, 1.0, 0.05, y0, max_steps=32, throw=False
        ).ys

    return jax.vmap(solve), (jax.random.split(jax.random.PRNGKey(0), 16), normal(1, 16, 3))


def optimistix_levenberg_marquardt() -> Program:
    """Nonlinear least-squares fits of damped oscillations from several starting points."""
    import optimistix as optx

    def residuals(params: jax.Array, data: Any) -> jax.Array:
        t, y = data
        return params[0] * jnp.exp(-params[1] * t) * jnp.cos(params[2] * t + params[3]) - y

    def fit(params: jax.Array, t: jax.Array, y: jax.Array) -> jax.Array:
        solver = optx.LevenbergMarquardt(rtol=1e-3, atol=1e-4)
        return optx.least_squares(residuals, solver, params, (t, y), throw=False).value

    t = jnp.linspace(0.0, 4.0, 80)
    y = 2.0 * jnp.exp(-0.5 * t) * jnp.cos(3.0 * t + 0.4) + 0.02 * normal(0, 80)
    starts = jnp.array([1.5, 0.3, 2.8, 0.2]) + 0.05 * normal(1, 8, 4)
    return jax.vmap(fit, in_axes=(0, None, None)), (starts, t, y)


def optimistix_newton_implicit_grad() -> Program:
    """Gradient through a root find by the implicit function theorem."""
    import optimistix as optx

    def loss(matrix: jax.Array, bias: jax.Array) -> jax.Array:
        def residual(z: jax.Array, args: Any) -> jax.Array:
            matrix, bias = args
            return z - jnp.tanh(matrix @ z + bias)

        solver = optx.Newton(rtol=1e-4, atol=1e-5)
        solution = optx.root_find(
            residual, solver, jnp.zeros_like(bias), (matrix, bias), throw=False
        )
        return jnp.sum(solution.value**2)

    return jax.value_and_grad(loss, argnums=(0, 1)), (normal(0, 64, 64) / 16.0, normal(1, 64))


def lineax_gmres_solve() -> Program:
    """Matrix-free GMRES solve with an operator given as a Jacobian."""
    import lineax as lx

    def solve(x: jax.Array, matrix: jax.Array, rhs: jax.Array) -> jax.Array:
        def function(x: jax.Array, args: Any) -> jax.Array:
            del args
            return x + 0.3 * jnp.tanh(matrix @ x)

        operator = lx.JacobianLinearOperator(function, x)
        solver = lx.GMRES(rtol=1e-5, atol=1e-5, restart=10)
        return lx.linear_solve(operator, rhs, solver, throw=False).value

    return solve, (normal(0, 256), normal(1, 256, 256) / 16.0, normal(2, 256))


def lineax_qr_least_squares_grad() -> Program:
    """Gradient through a batched QR least-squares solve."""
    import lineax as lx

    def loss(matrices: jax.Array, rhs: jax.Array) -> jax.Array:
        def solve(matrix: jax.Array, vector: jax.Array) -> jax.Array:
            operator = lx.MatrixLinearOperator(matrix)
            return lx.linear_solve(operator, vector, lx.QR(), throw=False).value

        return jnp.sum(jax.vmap(solve)(matrices, rhs) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1)), (normal(0, 16, 32, 12), normal(1, 16, 32))


def jaxopt_lbfgs_logistic() -> Program:
    """L-BFGS fit of a regularised multinomial logistic regression."""
    import jaxopt

    def fit(weights: jax.Array, x: jax.Array, labels: jax.Array) -> Any:
        def objective(weights: jax.Array) -> jax.Array:
            losses = jaxopt.loss.multiclass_logistic_loss(labels, x @ weights)
            return jnp.mean(losses) + 0.05 * jnp.sum(weights**2)

        params, state = jaxopt.LBFGS(objective, maxiter=8, jit=True).run(weights)
        return params, state.value

    labels = jax.random.randint(jax.random.PRNGKey(1), (100,), 0, 4)
    return fit, (jnp.zeros((10, 4)), normal(0, 100, 10), labels)


def jaxopt_osqp_portfolio() -> Program:
    """Quadratic program of a portfolio on the simplex by operator splitting."""
    import jaxopt

    def solve(covariance: jax.Array, returns: jax.Array) -> jax.Array:
        size = returns.shape[0]
        solver = jaxopt.OSQP(maxiter=60, tol=1e-4, jit=True)
        params, _ = solver.run(
            params_obj=(covariance, -returns),
            params_eq=(jnp.ones((1, size)), jnp.ones(1)),
            params_ineq=(-jnp.eye(size), jnp.zeros(size)),
        )
        return params.primal

    factor = normal(0, 24, 24) / 5.0
    return solve, (factor @ factor.T + 0.5 * jnp.eye(24), 0.2 * normal(1, 24))


def jaxopt_simplex_projection_grad() -> Program:
    """Projected-gradient solve on the simplex, differentiated implicitly."""
    import jaxopt

    def loss(matrix: jax.Array, target: jax.Array) -> jax.Array:
        def objective(x: jax.Array, matrix: jax.Array) -> jax.Array:
            return 0.5 * jnp.sum((matrix @ x - target) ** 2)

        solver = jaxopt.ProjectedGradient(
            objective, jaxopt.projection.projection_simplex, stepsize=0.05, maxiter=60
        )
        x0 = jnp.full(matrix.shape[1], 1.0 / matrix.shape[1])
        return jnp.sum(solver.run(x0, matrix=matrix).params ** 2)

    return jax.value_and_grad(loss), (normal(0, 48, 32) / 4.0, normal(1, 48))


def ott_sinkhorn_grad() -> Program:
    """Gradient of the entropic transport cost with respect to one point cloud."""
    from ott.geometry import pointcloud
    from ott.solvers import linear

    def cost(x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
        geometry = pointcloud.PointCloud(x, y, epsilon=0.1)
        return linear.solve(geometry, a=weights, max_iterations=100).reg_ot_cost

    args = (normal(0, 32, 3), normal(1, 40, 3), jax.nn.softmax(0.3 * normal(2, 32)))
    return jax.value_and_grad(cost), args


def ott_gromov_wasserstein() -> Program:
    """Gromov-Wasserstein coupling of two clouds that live in different dimensions."""
    from ott.geometry import pointcloud
    from ott.problems.quadratic import quadratic_problem
    from ott.solvers.linear import sinkhorn
    from ott.solvers.quadratic import gromov_wasserstein

    def solve(x: jax.Array, y: jax.Array) -> Any:
        problem = quadratic_problem.QuadraticProblem(
            pointcloud.PointCloud(x), pointcloud.PointCloud(y)
        )
        solver = gromov_wasserstein.GromovWasserstein(
            linear_solver=sinkhorn.Sinkhorn(max_iterations=20), epsilon=1.0, max_iterations=4
        )
        out = solver(problem)
        return out.matrix, out.reg_gw_cost

    return solve, (normal(0, 16, 2), normal(1, 20, 3))


def jax_cosmo_nonlinear_power() -> Program:
    """Halofit matter power spectrum, whose normalisation integral is unrolled."""
    import jax_cosmo as jc

    def log_power(theta: jax.Array, k: jax.Array) -> jax.Array:
        cosmology = jc.Planck15(Omega_c=theta[0], sigma8=theta[1])
        return jnp.log(jc.power.nonlinear_matter_power(cosmology, k, a=0.8))

    return log_power, (jnp.array([0.26, 0.82]), jnp.logspace(-3.0, 0.5, 128))


def jax_cosmo_distance_jacobian() -> Program:
    """Distances and growth of a cosmology with evolving dark energy, and their sensitivities."""
    import jax_cosmo as jc

    def distances(theta: jax.Array, a: jax.Array) -> Any:
        cosmology = jc.Planck15(Omega_c=theta[0], w0=theta[1], wa=theta[2])
        return (
            jc.background.radial_comoving_distance(cosmology, a),
            jc.background.angular_diameter_distance(cosmology, a),
            jc.background.growth_factor(cosmology, a),
        )

    def value_and_jacobian(theta: jax.Array, a: jax.Array) -> Any:
        return distances(theta, a), jax.jacfwd(distances)(theta, a)

    return value_and_jacobian, (jnp.array([0.26, -0.9, 0.1]), jnp.linspace(0.3, 0.99, 48))


def s2fft_forward_inverse() -> Program:
    """Inverse and forward spin-spherical harmonic transforms of a band-limited signal."""
    from s2fft.transforms import spherical

    band_limit = 16

    def round_trip(flm: jax.Array) -> Any:
        signal = spherical.inverse_jax(flm, band_limit, sampling="mw")
        return signal, spherical.forward_jax(signal, band_limit, sampling="mw")

    degree = jnp.arange(band_limit)[:, None]
    order = jnp.arange(1 - band_limit, band_limit)[None, :]
    coefficients = normal(0, *(band_limit, 2 * band_limit - 1)) + 1j * normal(1, 16, 31)
    return round_trip, (jnp.where(jnp.abs(order) <= degree, coefficients, 0.0),)


def _lattice(side: int, spacing: float) -> jax.Array:
    """Slightly perturbed cubic lattice of ``side**3`` points."""
    axis = spacing * jnp.arange(side, dtype=jnp.float32)
    grid = jnp.stack(jnp.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    return grid + 0.05 * normal(0, *grid.shape)


def jax_md_lennard_jones_nve() -> Program:
    """Five velocity-Verlet steps of a periodic Lennard-Jones fluid."""
    from jax_md import energy, simulate, space

    displacement, shift = space.periodic(3 * 1.3)
    energy_fn = energy.lennard_jones_pair(displacement, sigma=1.0, epsilon=1.0)
    init, step = simulate.nve(energy_fn, shift, dt=1e-3)

    def run(key: jax.Array, positions: jax.Array) -> Any:
        state = init(key, positions, kT=0.5)
        state = jax.lax.fori_loop(0, 5, lambda _, state: step(state), state)
        return state.position, state.momentum, energy_fn(state.position)

    return run, (jax.random.PRNGKey(1), _lattice(3, 1.3))


def jax_md_neighbor_list_forces() -> Program:
    """Neighbour-list update and Lennard-Jones forces of a periodic box."""
    from jax_md import energy, quantity, space

    box = 6 * 1.2
    displacement, _ = space.periodic(box)
    neighbor_fn, energy_fn = energy.lennard_jones_neighbor_list(
        displacement, box, r_onset=1.6, r_cutoff=2.0, dr_threshold=0.2
    )
    neighbors = neighbor_fn.allocate(_lattice(6, 1.2), extra_capacity=4)
    force_fn = quantity.force(energy_fn)

    def forces(positions: jax.Array) -> Any:
        updated = neighbors.update(positions)
        energies = energy_fn(positions, neighbor=updated)
        return force_fn(positions, neighbor=updated), energies, updated.did_buffer_overflow

    return forces, (_lattice(6, 1.2) + 0.01,)


def jaxley_hodgkin_huxley_grad() -> Program:
    """Gradient of a voltage loss through a branched Hodgkin-Huxley neuron."""
    import jaxley as jx
    from jaxley.channels import HH

    cell = jx.Cell(jx.Branch(jx.Compartment(), ncomp=2), parents=[-1, 0, 0])
    cell.insert(HH())
    cell.branch(1).loc(0.0).record("v", verbose=False)
    cell.branch(0).loc(0.0).stimulate(jx.step_current(0.5, 1.0, 0.5, 0.025, 2.0), verbose=False)
    cell.make_trainable("HH_gNa", verbose=False)
    cell.make_trainable("HH_gK", verbose=False)
    params = cell.get_parameters()
    cell.to_jax()

    def loss(params: Any) -> jax.Array:
        voltage = jx.integrate(cell, params=params, delta_t=0.025, t_max=2.0)
        return jnp.mean((voltage + 60.0) ** 2)

    return jax.value_and_grad(loss), (params,)


WORKLOADS: dict[str, Builder] = {
    "diffrax-tsit5-lorenz": diffrax_tsit5_lorenz,
    "diffrax-kvaerno5-van-der-pol": diffrax_kvaerno5_van_der_pol,
    "diffrax-neural-ode-grad": diffrax_neural_ode_grad,
    "diffrax-sde-euler-heun": diffrax_sde_euler_heun,
    "optimistix-levenberg-marquardt": optimistix_levenberg_marquardt,
    "optimistix-newton-implicit-grad": optimistix_newton_implicit_grad,
    "lineax-gmres-solve": lineax_gmres_solve,
    "lineax-qr-least-squares-grad": lineax_qr_least_squares_grad,
    "jaxopt-lbfgs-logistic": jaxopt_lbfgs_logistic,
    "jaxopt-osqp-portfolio": jaxopt_osqp_portfolio,
    "jaxopt-simplex-projection-grad": jaxopt_simplex_projection_grad,
    "ott-sinkhorn-grad": ott_sinkhorn_grad,
    "ott-gromov-wasserstein": ott_gromov_wasserstein,
    "jax_cosmo-nonlinear-power": jax_cosmo_nonlinear_power,
    "jax_cosmo-distance-jacobian": jax_cosmo_distance_jacobian,
    "s2fft-forward-inverse": s2fft_forward_inverse,
    "jax_md-lennard-jones-nve": jax_md_lennard_jones_nve,
    "jax_md-neighbor-list-forces": jax_md_neighbor_list_forces,
    "jaxley-hodgkin-huxley-grad": jaxley_hodgkin_huxley_grad,
}
