"""Reaction networks, programs to be optimised, particles, waves, lattice fields, filters and breeding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def smfsb_lotka_volterra_gillespie() -> Program:
    """Predators and prey, one reaction at a time."""
    import jsmfsb

    model = jsmfsb.models.lv()
    step = model.step_gillespie()

    def run(key):
        return jsmfsb.sim_time_series(key, model.m, 0, 10, 0.1, step)

    return run, (jax.random.key_data(jax.random.key(42)),)


def smfsb_particle_marginal_likelihood() -> Program:
    """Likelihood of noisy predator-prey counts by eighty particles."""
    import jsmfsb

    def log_likelihood(x, t, y, th):
        return jnp.sum(jax.scipy.stats.norm.logpdf(y - x, scale=10))

    def start(key, t0, th):
        k1, k2 = jax.random.split(key)
        counts = [jax.random.poisson(k1, 50), jax.random.poisson(k2, 100)]
        return jnp.array(counts).astype(jnp.float32)

    def step(key, x, t, dt, th):
        return jsmfsb.models.lv(th).step_cle(0.1)(key, x, t, dt)

    data = jsmfsb.data.lv_noise_10
    run = jsmfsb.pf_marginal_ll(80, start, 0, step, log_likelihood, data)
    return run, (jax.random.PRNGKey(42), jnp.array([1, 0.005, 0.6]))


def smfsb_langevin_2d() -> Program:
    """Predators and prey that diffuse on a grid of 40 by 50."""
    import jsmfsb

    model = jsmfsb.models.lv()
    step = model.step_cle_2d(jnp.array([0.6, 0.6]), 0.05)
    x0 = jnp.zeros((2, 40, 50)).at[:, 20, 25].set(model.m)

    def run(key, x0):
        return step(key, x0, 0, 2.0)

    return run, (jax.random.PRNGKey(42), x0)


def lqrax_ilqr_unicycle() -> Program:
    """Ten iterations of a quadratic regulator that steers a unicycle along a wave."""
    from lqrax.ilqr import iLQR

    class Unicycle(iLQR):
        def dyn(self, xt, ut):
            return jnp.array([ut[0] * jnp.cos(xt[2]), ut[0] * jnp.sin(xt[2]), ut[1]])

    num, dt = 100, 0.05
    ilqr = Unicycle(
        dt=dt,
        x_dim=3,
        u_dim=2,
        Q=jnp.diag(jnp.array([0.1, 0.1, 0.01])),
        R=jnp.diag(jnp.array([0.01, 0.01])),
    )
    ts = jnp.arange(num) * dt
    ref = jnp.stack([ts, jnp.sin(ts), jnp.zeros(num)], axis=1)

    def loss(x, u, r):
        return jnp.sum(jnp.array([10.0, 10.0, 0.01]) * (x - r) ** 2) + 0.1 * jnp.sum(u**2)

    def total(x0, u):
        return jnp.sum(jax.vmap(loss)(ilqr.traj_sim(x0, u), u, ref)) * dt

    def run(x0, u0):
        def step(u, _):
            x, A, B = ilqr.linearize_dyn(x0, u)
            a = jax.vmap(jax.grad(loss, 0))(x, u, ref)
            b = jax.vmap(jax.grad(loss, 1))(x, u, ref)
            v, _ = ilqr.solve(A, B, a, b)
            sizes = jnp.array([1.0, 0.5, 0.25, 0.1, 0.02])
            losses = jax.vmap(lambda s: total(x0, u + s * v))(sizes)
            best = jnp.argmin(losses)
            return u + sizes[best] * v, losses[best]

        return jax.lax.scan(step, u0, None, length=10)

    return run, (jnp.array([0.0, 0.5, 0.0]), jnp.tile(jnp.array([1.0, 0.0]), (num, 1)))


def linrax_linear_programs() -> Program:
    """Sixteen linear programs by the simplex method."""
    from linrax import linprog

    n, m, b = 6, 12, 16
    rng = np.random.RandomState(0)
    A = jnp.asarray(rng.uniform(0.1, 1.0, (b, m, n)), jnp.float32)
    bound = jnp.asarray(rng.uniform(1.0, 3.0, (b, m)), jnp.float32)
    c = -jnp.asarray(rng.uniform(0.5, 2.0, (b, n)), jnp.float32)

    def one(c, A, bound):
        step, sol = linprog(c, A_ub=A, b_ub=bound)
        return step.x, step.fun, sol.success

    return jax.vmap(one), (c, A, bound)


def chromax_breeding() -> Program:
    """Five generations of crossing and selection among forty plants."""
    from chromax import functional

    n, markers = 40, 2000
    key = jax.random.PRNGKey(0)
    pop = jax.random.bernoulli(key, 0.4, (n, markers, 2))
    rates = jnp.full((markers,), 1.5 / markers).at[::200].set(0.5)
    effects = jax.random.normal(jax.random.PRNGKey(1), (markers,))

    def value(p):
        return jnp.einsum("nmd,m->n", p.astype(jnp.float32), effects)

    def run(pop, key):
        def step(carry, _):
            pop, key = carry
            key, k1, k2, k3 = jax.random.split(key, 4)
            pairs = jax.random.randint(k1, (40, 2), 0, pop.shape[0])
            children = functional.cross(pop[pairs], rates, k2)
            lines = functional.double_haploid(children, 4, rates, k3).reshape(-1, markers, 2)
            best, ids = functional.select(lines, 40, value)
            return (best.astype(pop.dtype), key), (value(best).mean(), ids)

        carry = (pop, jax.random.wrap_key_data(key))
        (pop, _), out = jax.lax.scan(step, carry, None, length=5)
        return pop, out

    return run, (pop, key)


def exponax_kuramoto_sivashinsky() -> Program:
    """Two hundred steps of the Kuramoto-Sivashinsky equation."""
    import exponax as ex

    stepper = ex.stepper.KuramotoSivashinskyConservative(
        num_spatial_dims=1, domain_extent=100.0, num_points=200, dt=0.1
    )
    start = ex.ic.RandomTruncatedFourierSeries(num_spatial_dims=1, cutoff=5)
    u0 = start(num_points=200, key=jax.random.PRNGKey(0))
    return ex.rollout(stepper, 200, include_init=True), (u0,)


def exponax_navier_stokes_grad() -> Program:
    """Ten steps of flow in the plane, and the gradient through them."""
    import exponax as ex

    stepper = ex.stepper.NavierStokesVorticity(2, 2 * jnp.pi, 32, 0.05, diffusivity=0.01)
    start = ex.ic.RandomTruncatedFourierSeries(num_spatial_dims=2, cutoff=4)
    u0 = start(num_points=32, key=jax.random.PRNGKey(0))

    def run(u):
        return jax.value_and_grad(lambda u: jnp.mean(ex.repeat(stepper, 10)(u) ** 2))(u)

    return run, (u0,)


def smcx_bootstrap_volatility() -> Program:
    """A stochastic volatility model by a filter with 500 particles."""
    import smcx

    key = jax.random.PRNGKey(0)
    y = jax.random.normal(key, (100, 1)) * 0.7

    def start(key, n):
        return jax.random.normal(key, (n, 1))

    def move(key, state):
        return 0.95 * state + 0.3 * jax.random.normal(key, state.shape)

    def log_density(obs, state):
        s = jnp.exp(state[0] / 2)
        return -0.5 * (obs[0] / s) ** 2 - jnp.log(s)

    def run(key, y):
        r = smcx.bootstrap_filter(key, start, move, log_density, y, num_particles=500)
        return r.marginal_loglik, r.ess

    return run, (key, y)


def smcx_kalman_grad() -> Program:
    """Likelihood of a track by a Kalman filter, and its gradient."""
    import smcx

    rng = np.random.RandomState(0)
    y = jnp.asarray(np.cumsum(rng.randn(200, 2), 0) * 0.1, jnp.float32)
    G = jnp.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 0.98, 0], [0, 0, 0, 0.98]], jnp.float32)
    F = jnp.eye(2, 4)

    def log_likelihood(y, w):
        post = smcx.kalman_filter(
            jnp.zeros(4), jnp.eye(4), G, w * jnp.eye(4), F, 0.1 * jnp.eye(2), y
        )
        return post.marginal_loglik

    return jax.value_and_grad(log_likelihood, argnums=1), (y, jnp.float32(0.05))


def phyjax2d_balls() -> Program:
    """Thirty steps of twenty-three balls that fall into a box."""
    import dataclasses

    from phyjax2d.impl import nstep
    from phyjax2d.utils import SpaceBuilder, make_square_segments

    builder = SpaceBuilder(gravity=(0.0, -9.8), dt=0.05)
    builder.add_chain_segments(chain_points=make_square_segments(-10.0, 10.0, 0.0, 20.0))
    rng = np.random.RandomState(0)
    for _ in range(20):
        builder.add_circle(radius=float(0.5 + 0.3 * rng.rand()))
    for _ in range(3):
        builder.add_circle(radius=0.4)
    space = builder.build()
    state = space.shaped.zeros_state()
    xy = np.stack([rng.uniform(-8, 8, 23), rng.uniform(2, 18, 23)], 1)
    place = dataclasses.replace(state.circle.p, xy=jnp.asarray(xy, jnp.float32))
    state = dataclasses.replace(state, circle=dataclasses.replace(state.circle, p=place))

    def run(state, solver):
        return nstep(30, 0.5, space, state, solver)

    return run, (state, space.init_solver())


def lfox_phi4_leapfrog() -> Program:
    """Twenty trajectories of a scalar field on a lattice of three dimensions."""
    from lfox.evolution import LeapfrogIntegrator

    couplings = {"kappa": 0.18169, "lambda": 1.3282}
    return _lfox_phi4((6, 6, 6), couplings, LeapfrogIntegrator(eps=0.1, Nstep=10))


def lfox_phi4_omelyan() -> Program:
    """Twenty trajectories of a scalar field on a lattice of two dimensions."""
    from lfox.evolution.integrators import OmelyanIntegrator

    couplings = {"kappa": 0.25, "lambda": 0.5}
    return _lfox_phi4((16, 16), couplings, OmelyanIntegrator(eps=0.1, Nstep=10))


def _lfox_phi4(shape: tuple[int, ...], couplings: dict[str, float], integrator) -> Program:
    """Hybrid Monte Carlo of a scalar field with quartic action."""
    import lfox.lattice as lat
    from lfox.action import Action
    from lfox.evolution import HMC

    class ScalarAction(Action):
        @staticmethod
        @jax.jit
        def _S(fields, params):
            phi = fields[0]
            S = phi**2
            for axis in range(phi.d()):
                S -= 2 * params["kappa"] * phi * phi.nn_field(axis)
            S += params["lambda"] * (phi**2 - 1) ** 2
            return S

    lattice = lat.SquareLattice(st_dims=shape)
    hmc = HMC(action=ScalarAction(field_names=["phi"], params=couplings), integrator=integrator)

    def run(values, key):
        field = lat.LatticeField(lattice=lattice, F=values)
        fields, monitor, _ = hmc.evolve_many({"phi": field}, key, 20)
        return fields["phi"].F, monitor

    return run, (jnp.ones(shape), jax.random.PRNGKey(1))


def diffusionjax_reverse_sde() -> Program:
    """A hundred steps of diffusion back to eight points on a circle."""
    from diffusionjax import sde, solvers, utils

    beta, mean_coeff = utils.get_linear_beta_function(beta_min=0.1, beta_max=20.0)
    vp = sde.VP(beta, mean_coeff)
    angles = jnp.linspace(0, 2 * jnp.pi * (1 - 1 / 8), 8)
    data = jnp.stack([jnp.cos(angles), jnp.sin(angles)], 1)
    ts, _ = utils.get_times(num_steps=100, dt=None, t0=1e-3)

    def run(key, data):
        def log_density(x, t):
            mean = vp.mean_coeff(t) * data / jnp.sqrt(2)
            std = jnp.sqrt(vp.variance(t))
            potentials = jnp.sum(-((x - mean) ** 2) / (2 * std**2), axis=1)
            return jax.scipy.special.logsumexp(potentials, axis=0, b=1 / 8)

        reverse = vp.reverse(jax.vmap(jax.grad(log_density)))
        sampler = utils.get_sampler(
            (256, 2),
            solvers.EulerMaruyama(reverse, ts),
            denoise=True,
            stack_samples=False,
            inverse_scaler=lambda x: x * jnp.sqrt(2),
        )
        return sampler(key)[0]

    return run, (jax.random.PRNGKey(0), data)


def astrojax_sgp4_orbit() -> Program:
    """A satellite at two hundred times of a day."""
    from astrojax.config import set_dtype
    from astrojax.sgp4 import create_sgp4_propagator

    set_dtype(jnp.float64)
    _, propagate = create_sgp4_propagator(
        "1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927",
        "2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537",
    )
    return jax.vmap(propagate), (jnp.linspace(0.0, 1440.0, 200),)


def nbodyx_figure_eight() -> Program:
    """Three bodies that follow each other on a figure eight."""
    from diffrax import Dopri5, ODETerm, SaveAt, diffeqsolve
    from nbodyx.constants import G
    from nbodyx.ode import make_n_body_ode

    term = ODETerm(make_n_body_ode(jnp.array([1.0, 1.0, 1.0]) / G))
    x0 = jnp.array([[-0.97000436, 0.24208753], [0.0, 0.0], [0.97000436, -0.24208753]])
    outer, middle = [0.4662036850, 0.4323657300], [-0.93240737, -0.86473146]
    y0 = jnp.stack([x0, jnp.array([outer, middle, outer])], axis=0).reshape(-1)
    ts = jnp.linspace(0.0, 6.3259, 101)

    def run(y0, control):
        return diffeqsolve(
            term, Dopri5(), ts[0], ts[-1], 2e-3, y0, control, saveat=SaveAt(ts=ts), max_steps=None
        ).ys

    return run, (y0, jnp.zeros((6,)))


WORKLOADS: dict[str, Builder] = {
    "smfsb-lotka-volterra-gillespie": smfsb_lotka_volterra_gillespie,
    "smfsb-particle-marginal-likelihood": smfsb_particle_marginal_likelihood,
    "smfsb-langevin-2d": smfsb_langevin_2d,
    "lqrax-ilqr-unicycle": lqrax_ilqr_unicycle,
    "linrax-linear-programs": linrax_linear_programs,
    "chromax-breeding": chromax_breeding,
    "exponax-kuramoto-sivashinsky": exponax_kuramoto_sivashinsky,
    "exponax-navier-stokes-grad": exponax_navier_stokes_grad,
    "smcx-bootstrap-volatility": smcx_bootstrap_volatility,
    "smcx-kalman-grad": smcx_kalman_grad,
    "phyjax2d-balls": phyjax2d_balls,
    "lfox-phi4-leapfrog": lfox_phi4_leapfrog,
    "diffusionjax-reverse-sde": diffusionjax_reverse_sde,
}

WORKLOADS_X64: dict[str, Builder] = {
    "astrojax-sgp4-orbit": astrojax_sgp4_orbit,
    "nbodyx-figure-eight": nbodyx_figure_eight,
    "lfox-phi4-omelyan": lfox_phi4_omelyan,
}
