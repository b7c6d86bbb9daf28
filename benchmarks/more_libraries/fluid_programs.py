"""Atmosphere, ocean, smoke, gas and plasma."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def dinosaur_shallow_water_steps() -> Program:
    """Forty steps of the shallow-water equations on the sphere."""
    from dinosaur import coordinate_systems as cs
    from dinosaur import layer_coordinates as lc
    from dinosaur import scales
    from dinosaur import shallow_water as sw
    from dinosaur import shallow_water_states as sws
    from dinosaur import spherical_harmonic as sh

    grid = sh.Grid.T42()
    coords = cs.CoordinateSystem(grid, lc.LayerCoordinates(1))
    specs = sw.ShallowWaterSpecs.from_si()
    phi0 = np.array([specs.nondimensionalize(scales.units.Quantity(5e4, "m**2/s**2"))])
    dt = float(specs.nondimensionalize(scales.units.Quantity(600.0, "s")))
    _, sinlat = grid.nodal_mesh
    s0 = sws.one_layer(jnp.asarray(0.05 * np.cos(np.arcsin(sinlat[0]))), grid)
    s0 = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32)[None], s0)
    # Off balance, so that divergence matters.
    bump = 2e-3 * np.exp(
        -(((grid.nodal_mesh[0] - 3.0) ** 2 + (grid.nodal_mesh[1] - 0.4) ** 2) / 0.05)
    )
    s0 = sw.State(
        s0.vorticity, s0.divergence, s0.potential + jnp.asarray(grid.to_modal(bump), jnp.float32)
    )
    orog = jnp.zeros(coords.horizontal.modal_shape, jnp.float32)

    def run(s0, orog):
        tr = sw.shallow_water_leapfrog_trajectory(
            coords, dt, specs, 5, 8, phi0, orog, sw.default_filters(grid, dt)
        )
        return tr((s0, s0))[0][0]

    return run, (s0, orog)


def dinosaur_held_suarez_steps() -> Program:
    """Ten steps of an idealised atmosphere with Held-Suarez forcing."""
    from dinosaur import coordinate_systems as cs
    from dinosaur import held_suarez as hs
    from dinosaur import primitive_equations as pe
    from dinosaur import primitive_equations_states as pes
    from dinosaur import scales
    from dinosaur import sigma_coordinates as sc
    from dinosaur import spherical_harmonic as sh
    from dinosaur import time_integration as ti

    u = scales.units
    coords = cs.CoordinateSystem(sh.Grid.T21(), sc.SigmaCoordinates.equidistant(8))
    specs = pe.PrimitiveEquationsSpecs.from_si()
    init, aux = pes.isothermal_rest_atmosphere(coords, specs, p1=5e3 * u.pascal)
    s0 = init(jax.random.PRNGKey(81))
    s0 = pe.State(
        **{
            k: getattr(s0, k)
            for k in ("vorticity", "divergence", "temperature_variation", "log_surface_pressure")
        }
    )
    s0 = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), s0)
    ref = aux["ref_temperatures"]
    orog = pe.truncated_modal_orography(aux["orography"], coords)
    dt = float(specs.nondimensionalize(600 * u.s))
    eq = ti.compose_equations(
        [pe.PrimitiveEquations(ref, orog, coords, specs), hs.HeldSuarezForcing(coords, specs, ref)]
    )
    step = ti.step_with_filters(
        ti.imex_rk_sil3(eq, dt), [ti.exponential_step_filter(coords.horizontal, dt)]
    )

    def run(s):
        return ti.repeated(step, 10)(s)

    return run, (s0,)


def jaxparrow_cyclogeostrophic_currents() -> Program:
    """Ocean currents from sea surface height by fixed-point iteration."""
    from jaxparrow.cyclogeostrophy import fixed_point

    lat, lon = np.meshgrid(np.linspace(30, 45, 120), np.linspace(-60, -40, 160), indexing="ij")
    ssh = 0.3 * np.exp(-((lat - 37) ** 2 + (lon + 50) ** 2) / 4) + 0.05 * np.sin(lon) * np.cos(lat)

    def single(a):
        return jnp.asarray(a, jnp.float32)

    def run(lat, lon, ssh):
        r = fixed_point(lat, lon, ssh, is_grid_rectilinear=True, n_it=10)
        return r.ucg, r.vcg

    return run, (single(lat), single(lon), single(ssh))


def phiflow_smoke_plume_2d() -> Program:
    """Two steps of a rising smoke plume with pressure projection."""
    from phi.jax.flow import (
        Box,
        CenteredGrid,
        Solve,
        StaggeredGrid,
        advect,
        diffuse,
        extrapolation,
        field,
        fluid,
        spatial,
        tensor,
    )

    dom = Box(x=64, y=80)
    yy, xx = np.meshgrid(np.arange(80), np.arange(64))
    s0 = jnp.asarray((xx - 32) ** 2 + (yy - 20) ** 2 < 150, jnp.float32)

    def run(s0):
        inflow = CenteredGrid(tensor(s0, spatial("x,y")), extrapolation.BOUNDARY, bounds=dom)
        smoke = inflow
        v = StaggeredGrid(0, 0, x=64, y=80, bounds=dom)
        for _ in range(2):
            smoke = advect.mac_cormack(smoke, v, 1.0) + 0.2 * inflow
            buoy = (smoke * (0, 0.1)).at(v)
            v = advect.semi_lagrangian(v, v, 1.0) + buoy
            v = diffuse.explicit(v, 0.05, 1.0)
            v, p = fluid.make_incompressible(
                v, (), Solve("CG", 1e-6, 1e-6, max_iterations=300, suppress=[])
            )
        return smoke.values.native("x,y"), (p - field.mean(p)).values.native("x,y")

    return run, (s0,)


def phiflow_burgers_2d_periodic() -> Program:
    """Five steps of the Burgers equation on a periodic grid."""
    from phi.jax.flow import (
        Box,
        CenteredGrid,
        advect,
        channel,
        diffuse,
        extrapolation,
        spatial,
        tensor,
    )

    u0 = jnp.asarray(
        np.stack([np.sin(2 * np.pi * np.mgrid[0:192, 0:192][i] / 192) for i in (0, 1)], -1),
        jnp.float32,
    )

    def run(u0):
        v = CenteredGrid(
            tensor(u0, spatial("x,y"), channel(vector="x,y")),
            extrapolation.PERIODIC,
            bounds=Box(x=192, y=192),
        )
        for _ in range(5):
            v = advect.semi_lagrangian(diffuse.explicit(v, 0.1, 1.0), v, 1.0)
        return v.values.native("x,y,vector")

    return run, (u0,)


def astronomix_sod_shock_tube() -> Program:
    """Sixty steps of a shock tube."""
    from astronomix import (
        SimulationConfig,
        SimulationParams,
        construct_primitive_state,
        finalize_config,
        get_registered_variables,
        time_integration,
    )
    from astronomix.option_classes.simulation_config import OPEN_BOUNDARY, BoundarySettings1D

    cfg = SimulationConfig(
        dimensionality=1,
        num_cells=256,
        box_size=1.0,
        fixed_timestep=True,
        num_timesteps=60,
        progress_bar=False,
        boundary_settings=BoundarySettings1D(
            left_boundary=OPEN_BOUNDARY, right_boundary=OPEN_BOUNDARY
        ),
    )
    par = SimulationParams(t_end=0.05)
    reg = get_registered_variables(cfg)
    x = np.linspace(0, 1, 256)
    st = construct_primitive_state(
        config=cfg,
        registered_variables=reg,
        density=jnp.asarray(np.where(x < 0.5, 1.0, 0.125), jnp.float32),
        velocity_x=jnp.zeros(256),
        gas_pressure=jnp.asarray(np.where(x < 0.5, 1.0, 0.1), jnp.float32),
    )
    cfg = finalize_config(cfg, st.shape)

    def run(st):
        return time_integration(st, cfg, par, reg)

    return run, (st,)


def torax_circular_tokamak_10_steps() -> Program:
    """Ten steps of heat and particle transport in a tokamak."""
    import copy

    import torax
    from torax._src.orchestration import initial_state as ini
    from torax._src.orchestration import run_simulation as rs
    from torax.examples import basic_config

    config = torax.ToraxConfig.from_dict(copy.deepcopy(basic_config.CONFIG))
    step_fn = rs.make_step_fn(config)
    s, pp = ini.get_initial_state_and_post_processed_outputs(step_fn=step_fn)

    def run(s, pp):
        (s, pp), _ = jax.lax.scan(lambda c, _: (step_fn(*c), None), (s, pp), None, 10)
        c = s.core_profiles
        return c.T_i.value, c.T_e.value, c.psi.value, c.n_e.value, s.t

    return run, (s, pp)


WORKLOADS: dict[str, Builder] = {
    "dinosaur-shallow-water-steps": dinosaur_shallow_water_steps,
    "dinosaur-held-suarez-steps": dinosaur_held_suarez_steps,
    "jaxparrow-cyclogeostrophic-currents": jaxparrow_cyclogeostrophic_currents,
    "astronomix-sod-shock-tube": astronomix_sod_shock_tube,
}

WORKLOADS_X64: dict[str, Builder] = {
    "phiflow-smoke-plume-2d": phiflow_smoke_plume_2d,
    "phiflow-burgers-2d-periodic": phiflow_burgers_2d_periodic,
    "torax-circular-tokamak-10-steps": torax_circular_tokamak_10_steps,
}
