"""Particles, fluids, neurons, poses and the sky."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, normal


def jax_md_stillinger_weber_nose_hoover() -> Program:
    """Silicon by Stillinger-Weber: 64 atoms in a periodic box, Nose-Hoover chain, 3 steps."""
    from jax_md import energy, simulate, space

    box = 10.862
    displacement, shift = space.periodic(box)
    potential = energy.stillinger_weber(displacement)
    init, apply = simulate.nvt_nose_hoover(potential, shift, dt=1e-3, kT=0.03)
    base = jnp.array(
        [[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0], [1, 1, 1], [1, 3, 3], [3, 1, 3], [3, 3, 1]]
    )
    cells = jnp.stack(jnp.meshgrid(*[jnp.arange(2)] * 3), -1).reshape(-1, 1, 3) * 4
    start = ((base[None] + cells).reshape(-1, 3) / 8.0 * box).astype(jnp.float32) + 0.02 * normal(
        0, 64, 3
    )

    def run(key: jax.Array, position: jax.Array) -> Any:
        state = init(key, position, mass=28.0)

        def step(state: Any, _: None) -> Any:
            state = apply(state)
            return state, (potential(state.position), simulate.kinetic_energy(state)) if hasattr(
                simulate, "kinetic_energy"
            ) else potential(state.position)

        state, energies = jax.lax.scan(step, state, None, length=3)
        return state.position, energies

    return run, (jax.random.PRNGKey(1), start)


def jax_md_npt_bidisperse_brownian() -> Program:
    """Brownian dynamics of 128 Morse particles with pair correlation and stress at the end."""
    from jax_md import energy, quantity, simulate, space

    size = 12.0
    displacement, shift = space.periodic(size)
    potential = energy.morse_pair(displacement, alpha=5.0, epsilon=1.0, sigma=1.0)
    init, apply = simulate.brownian(potential, shift, dt=1e-4, kT=0.2, gamma=0.1)

    def run(key: jax.Array, position: jax.Array) -> Any:
        state = init(key, position)
        state = jax.lax.fori_loop(0, 25, lambda _, s: apply(s), state)
        g = quantity.pair_correlation(displacement, jnp.linspace(0.2, 4.0, 40), 0.1)
        return state.position, jnp.mean(g(state.position), 0), jax.grad(potential)(state.position)

    grid = jnp.stack(jnp.meshgrid(jnp.arange(12.0), jnp.arange(12.0)), -1).reshape(-1, 2)[:128]
    return run, (jax.random.PRNGKey(0), grid + 0.05 * normal(1, 128, 2))


def jaxlie_bundle_adjustment_gauss_newton() -> Program:
    """Camera pose from 60 projected points by Gauss-Newton on the manifold of SE3, 6 iterations."""
    import jaxlie

    def solve(start: jax.Array, points: jax.Array, pixels: jax.Array) -> Any:
        def residual(pose: Any) -> jax.Array:
            cam = jax.vmap(pose.apply)(points)
            return (cam[:, :2] / cam[:, 2:] - pixels).reshape(-1)

        def step(pose: Any, _: None) -> Any:
            r = residual(pose)
            jac = jax.jacfwd(lambda d: residual(jaxlie.manifold.rplus(pose, d)))(jnp.zeros(6))
            delta = -jnp.linalg.solve(jac.T @ jac + 1e-4 * jnp.eye(6), jac.T @ r)
            return jaxlie.manifold.rplus(pose, delta), jnp.sum(r**2)

        pose, errors = jax.lax.scan(step, jaxlie.SE3.exp(start), None, length=6)
        return pose.wxyz_xyz, pose.log(), errors

    import jaxlie as jl

    true = jl.SE3.exp(jnp.array([0.1, -0.2, 4.0, 0.2, -0.1, 0.3]))
    points = normal(0, 60, 3)
    cam = jax.vmap(true.apply)(points)
    return solve, (jnp.array([0.0, 0, 3.5, 0, 0, 0]), points, cam[:, :2] / cam[:, 2:])


def jax_cosmo_linear_power_grad() -> Program:
    """Linear matter power at 64 scales and growth of structure, gradient to two cosmological parameters."""
    import jax_cosmo as jc

    def loss(omega_c: jax.Array, sigma8: jax.Array, k: jax.Array, a: jax.Array) -> jax.Array:
        cosmo = jc.Planck15(Omega_c=omega_c, sigma8=sigma8)
        power = jc.power.linear_matter_power(cosmo, k, a=0.7)
        growth = jc.background.growth_factor(cosmo, a)
        return jnp.mean(jnp.log(power)) + jnp.mean(growth**2)

    args = (
        jnp.float32(0.26),
        jnp.float32(0.81),
        jnp.logspace(-3, 0, 64),
        jnp.linspace(0.3, 1.0, 16),
    )
    return jax.value_and_grad(loss, argnums=(0, 1)), args


def jax_cfd_passive_scalar_forced() -> Program:
    """Kolmogorov forcing with van Leer advection on a 48 grid, 4 steps, vorticity of each."""
    import jax_cfd.base as cfd

    grid = cfd.grids.Grid((48, 48), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))
    velocity = cfd.initial_conditions.filtered_velocity_field(jax.random.PRNGKey(0), grid, 2.0, 4)
    step = cfd.equations.semi_implicit_navier_stokes(
        density=1.0,
        viscosity=1e-3,
        dt=0.01,
        grid=grid,
        forcing=cfd.forcings.kolmogorov_forcing(grid, k=4, scale=1.0),
        convect=lambda v: tuple(cfd.advection.advect_van_leer(u, v, 0.01) for u in v),
    )

    def run(velocity: Any) -> Any:
        def body(v: Any, _: None) -> Any:
            v = step(v)
            return v, cfd.finite_differences.curl_2d(v).data

        return jax.lax.scan(body, velocity, None, length=4)

    return run, (velocity,)


def jaxley_cable_step_current_train() -> Program:
    """Voltage of a branched cell with leak channels and a current, gradient to the radii and conductance."""
    import jaxley as jx
    from jaxley.channels import Leak

    comp = jx.Compartment()
    branch = jx.Branch(comp, ncomp=4)
    cell = jx.Cell(branch, parents=[-1, 0, 0])
    cell.insert(Leak())
    current = jx.step_current(i_delay=0.5, i_dur=1.0, i_amp=0.1, delta_t=0.025, t_max=2.0)
    cell.branch(0).loc(0.0).stimulate(current)
    cell.branch(1).loc(1.0).record(verbose=False)
    cell.make_trainable("Leak_gLeak", verbose=False)
    params = cell.get_parameters()

    def loss(params: Any) -> jax.Array:
        return jnp.mean((jx.integrate(cell, params=params, delta_t=0.025, t_max=2.0) + 60.0) ** 2)

    return jax.value_and_grad(loss), (params,)


def stwofft_wavelet_like_filter() -> Program:
    """Low-pass filtering of a spherical map: forward, harmonic damping, inverse, and power spectrum."""
    import s2fft

    bandlimit = 16

    def run(image: jax.Array, width: jax.Array) -> Any:
        flm = s2fft.forward_jax(image, bandlimit, reality=True)
        ell = jnp.arange(bandlimit)
        flm = flm * jnp.exp(-ell * (ell + 1) * width)[:, None]
        power = jnp.sum(jnp.abs(flm) ** 2, axis=-1) / (2 * ell + 1)
        return s2fft.inverse_jax(flm, bandlimit, reality=True).real, power

    return run, (normal(0, bandlimit, 2 * bandlimit - 1), jnp.float32(0.01))


WORKLOADS: dict[str, Builder] = {
    "jax-md-silicon-nose-hoover": jax_md_stillinger_weber_nose_hoover,
    "jax-md-morse-brownian-correlation": jax_md_npt_bidisperse_brownian,
    "jaxlie-camera-pose-gauss-newton": jaxlie_bundle_adjustment_gauss_newton,
    "jax-cosmo-linear-power-grad": jax_cosmo_linear_power_grad,
    "jax-cfd-kolmogorov-van-leer": jax_cfd_passive_scalar_forced,
    "jaxley-branched-leak-grad": jaxley_cable_step_current_train,
    "sphere-fft-smooth-map": stwofft_wavelet_like_filter,
}
