"""Light curves, galaxies, lenses, gravitational waves and structure formation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def jaxoplanet_transit_lightcurve_grad() -> Program:
    """Light curve of a transiting planet, and the gradient in its orbit."""
    from jaxoplanet.light_curves.limb_dark import light_curve
    from jaxoplanet.orbits import TransitOrbit

    t = jnp.linspace(-0.2, 0.2, 1000)

    def run(p, t):
        def loss(p):
            orbit = TransitOrbit(
                period=p[0], duration=p[1], time_transit=p[2], impact_param=p[3], radius_ratio=p[4]
            )
            return jnp.sum(light_curve(orbit, p[5:7])(t) ** 2)

        return jax.value_and_grad(loss)(p)

    return run, (jnp.array([3.5, 0.12, 0.01, 0.3, 0.1, 0.4, 0.2]), t)


def jaxoplanet_keplerian_rv_lightcurve() -> Program:
    """Light curve and radial velocities of a star with two eccentric planets."""
    from jaxoplanet.light_curves.limb_dark import light_curve
    from jaxoplanet.orbits.keplerian import Central, System

    t = jnp.linspace(0.0, 30.0, 4000)

    def run(t, e, r, u):
        sys = System(Central(mass=1.1, radius=1.0)).add_body(
            period=4.2,
            time_transit=1.0,
            eccentricity=e,
            omega_peri=0.3,
            impact_param=0.2,
            radius=r,
            mass=1e-3,
        )
        sys = sys.add_body(
            period=11.3,
            time_transit=3.0,
            eccentricity=0.1 * e,
            omega_peri=1.1,
            impact_param=0.1,
            radius=0.5 * r,
            mass=2e-3,
        )
        return light_curve(sys, u)(t), sys.radial_velocity(t)

    return run, (t, jnp.array(0.2), jnp.array(0.08), jnp.array([0.3, 0.2]))


def galsim_sersic_moffat_convolved_draw() -> Program:
    """Image of a sheared galaxy, blurred by the atmosphere."""
    import jax_galsim as gs

    def run(g1, g2, hlr, flux):
        gal = gs.Exponential(half_light_radius=hlr, flux=flux).shear(g1=g1, g2=g2)
        psf = gs.Moffat(beta=2.5, half_light_radius=0.7)
        return (
            gs.Convolve([gal, psf])
            .withGSParams(minimum_fft_size=256, maximum_fft_size=256)
            .drawImage(nx=64, ny=64, scale=0.2)
            .array
        )

    return run, tuple(jnp.float32(v) for v in (0.1, -0.05, 0.9, 1000.0))


def galsim_stamps_vmap_grad() -> Program:
    """Images of 32 galaxies, and the gradient in their shapes."""
    import jax_galsim as gs

    rng = np.random.default_rng(41)
    p = jnp.asarray(
        np.stack(
            [rng.uniform(-0.2, 0.2, 32), rng.uniform(-0.2, 0.2, 32), rng.uniform(0.6, 1.2, 32)], 1
        ),
        jnp.float32,
    )

    def run(p, psf_r):
        def one(p):
            g = gs.Gaussian(half_light_radius=p[2], flux=50.0).shear(g1=p[0], g2=p[1])
            im = (
                gs.Convolve([g, gs.Moffat(beta=3.0, fwhm=psf_r)])
                .withGSParams(minimum_fft_size=128, maximum_fft_size=128)
                .drawImage(nx=32, ny=32, scale=0.25)
                .array
            )
            return jnp.sum(im**2)

        return jax.value_and_grad(lambda q: jax.vmap(one)(q).sum())(p)

    return run, (p, jnp.float32(0.8))


def dsps_galaxy_sed_grad() -> Program:
    """Spectrum of a galaxy from its star formation history, and its gradient."""
    import dsps

    rng = np.random.default_rng(43)
    lgmet = jnp.linspace(-4, -1.5, 12)
    lgage = jnp.linspace(-4, 1.15, 90)
    flux = jnp.asarray(rng.random((12, 90, 1500)) * 1e-4 / np.arange(1, 91)[:, None], jnp.float32)
    t = jnp.linspace(0.1, 13.8, 100)
    sfr = jnp.exp(-t / 4) * t

    def run(t, sfr, met, lgmet, lgage, flux):
        def f(m, s):
            return jnp.log(
                dsps.calc_rest_sed_sfh_table_lognormal_mdf(
                    t, s, m, 0.2, lgmet, lgage, flux, 13.0
                ).rest_sed
            ).sum()

        return jax.value_and_grad(f, (0, 1))(met, sfr)

    return run, (t, sfr, jnp.float32(-2.2), lgmet, lgage, flux)


def diffmah_halo_population() -> Program:
    """Mass histories of 20000 dark matter halos."""
    import diffmah

    n = 20000
    rng = np.random.default_rng(44)
    defaults = diffmah.DEFAULT_MAH_PARAMS
    mp = jax.tree.map(
        lambda v: jnp.asarray(v + 0.1 * rng.normal(size=n), jnp.float32),
        type(defaults)(*[np.float32(v) for v in defaults]),
    )

    def run(mp, t):
        return diffmah.mah_halopop(mp, t, jnp.log10(13.8))

    return run, (mp, jnp.linspace(0.5, 13.8, 60))


def diffstar_sfh_population_grad() -> Program:
    """Star formation histories of a hundred galaxies, and their gradient."""
    import diffmah
    import diffstar

    n = 100
    rng = np.random.default_rng(45)

    def pop(defaults):
        return jax.tree.map(
            lambda v: jnp.asarray(v + 0.03 * rng.normal(size=n), jnp.float32), defaults
        )

    mp = pop(jax.tree.map(lambda v: np.float32(v), diffmah.DEFAULT_MAH_PARAMS))
    sp = pop(jax.tree.map(lambda v: np.float32(v), diffstar.DEFAULT_DIFFSTAR_PARAMS))

    def run(sp, mp, t):
        def f(sp):
            return jnp.log10(
                diffstar.calc_sfh_galpop(sp, mp, t, lgt0=np.log10(13.8), fb=0.156) + 1e-6
            ).mean()

        return jax.value_and_grad(f)(sp)

    return run, (sp, mp, jnp.linspace(0.5, 13.8, 40))


def jaxtronomy_lens_ray_shooting() -> Program:
    """Rays and magnifications of a gravitational lens of three components."""
    from jaxtronomy.LensModel.lens_model import LensModel

    lm = LensModel(["EPL", "SHEAR", "NFW"])
    g = np.linspace(-2.5, 2.5, 200) + 0.013
    x, y = map(jnp.ravel, np.meshgrid(g, g))
    kw = [
        {"theta_E": 1.2, "gamma": 2.05, "e1": 0.1, "e2": -0.05, "center_x": 0.01, "center_y": 0.02},
        {"gamma1": 0.03, "gamma2": -0.02, "ra_0": 0.0, "dec_0": 0.0},
        {"Rs": 0.5, "alpha_Rs": 0.1, "center_x": 0.8, "center_y": -0.3},
    ]
    kw = jax.tree.map(jnp.asarray, kw)

    def run(x, y, kw):
        return lm.ray_shooting(x, y, kw), lm.magnification(x, y, kw)

    return run, (x, y, kw)


def jaxtronomy_source_image_chi2_grad() -> Program:
    """Misfit of a lensed galaxy image, and its gradient in the lens."""
    from jaxtronomy.LensModel.lens_model import LensModel
    from jaxtronomy.LightModel.Profiles.sersic_ellipse import SersicElliptic

    lm = LensModel(["SIE", "SHEAR"])
    g = np.linspace(-2.5, 2.5, 80) + 0.011
    x, y = map(jnp.ravel, np.meshgrid(g, g))
    kw = jax.tree.map(
        jnp.asarray,
        [
            {"theta_E": 1.3, "e1": 0.08, "e2": 0.05, "center_x": 0.01, "center_y": 0.02},
            {"gamma1": 0.02, "gamma2": 0.01, "ra_0": 0.0, "dec_0": 0.0},
        ],
    )

    def run(x, y, kw, d):
        def chi2(kw):
            bx, by = lm.ray_shooting(x, y, kw)
            im = SersicElliptic().function(
                bx,
                by,
                amp=10.0,
                R_sersic=0.3,
                n_sersic=1.5,
                e1=0.1,
                e2=0.05,
                center_x=0.1,
                center_y=0.05,
            )
            return jnp.sum((im - d) ** 2)

        return jax.value_and_grad(chi2)(kw)

    return run, (x, y, kw, jnp.asarray(np.random.default_rng(118).random(6400)))


def _gwparams(n):
    """Masses, spins and distances of n random black-hole binaries."""
    rng = np.random.default_rng(50)
    return jnp.asarray(
        np.stack(
            [
                rng.uniform(20, 40, n),
                rng.uniform(0.18, 0.245, n),
                rng.uniform(-0.5, 0.5, n),
                rng.uniform(-0.5, 0.5, n),
                rng.uniform(300, 900, n),
                np.zeros(n),
                rng.uniform(0, 3, n),
                rng.uniform(0.2, 1.0, n),
            ],
            1,
        ),
        jnp.float32,
    )


def ripplegw_imrphenomd_batch() -> Program:
    """Waveforms of 128 binary black holes with aligned spins."""
    from ripplegw.waveforms.cbc.IMRPhenomD.IMRPhenomD import gen_IMRPhenomD_hphc

    f = jnp.arange(20.0, 512.0, 0.25, dtype=jnp.float64)

    def run(f, p):
        return jax.vmap(lambda q: gen_IMRPhenomD_hphc(f, q, 20.0))(p)

    return run, (f, _gwparams(128).astype(jnp.float64))


def ripplegw_phenomd_likelihood_grad() -> Program:
    """Likelihood of a gravitational-wave signal, and its gradient."""
    from ripplegw.waveforms.cbc.IMRPhenomD.IMRPhenomD import gen_IMRPhenomD_hphc

    f = jnp.arange(20.0, 512.0, 0.25, dtype=jnp.float64)
    th = _gwparams(1)[0].astype(jnp.float64)
    d = gen_IMRPhenomD_hphc(f, th, 20.0)[0]
    psd = 1e-46 * (1 + (f / 100.0) ** 2)

    def run(f, d, psd, th):
        def ll(th):
            h = gen_IMRPhenomD_hphc(f, th, 20.0)[0]
            return -2 * jnp.sum(jnp.abs(h - d) ** 2 / psd) * 0.25

        return jax.value_and_grad(ll)(th * 1.001)

    return run, (f, d, psd, th)


def ripplegw_phenompv2_fisher() -> Program:
    """Fisher matrix of the waveform of a precessing binary."""
    from ripplegw.waveforms.cbc.IMRPhenomD.IMRPhenomPv2 import gen_IMRPhenomPv2_hphc

    f = jnp.arange(20.0, 256.0, 0.25, dtype=jnp.float64)
    th = jnp.array([28.0, 0.23, 0.1, 0.05, 0.3, 0.02, -0.1, 0.2, 500.0, 0.0, 0.4, 0.5])

    def run(f, th):
        def h(t):
            hp, hc = gen_IMRPhenomPv2_hphc(f, t, 20.0)
            return jnp.stack([hp.real, hp.imag, hc.real, hc.imag]) * 1e22

        J = jax.jacfwd(h)(th)
        return jnp.einsum("afi,afj->ij", J, J)

    return run, (f, th)


def jaxpm_particle_mesh_leapfrog() -> Program:
    """Three particle-mesh steps of a cosmological simulation."""
    from jaxpm.painting import cic_paint
    from jaxpm.pm import pm_forces

    n = 48
    q = jnp.stack(jnp.meshgrid(*[jnp.arange(float(n))] * 3, indexing="ij"), -1).reshape(-1, 3)
    x0 = q + jnp.asarray(np.random.default_rng(80).normal(size=q.shape) * 0.3, jnp.float32)

    def run(x, v):
        def step(c, _):
            x, v = c
            v = v + 0.05 * pm_forces(x, mesh_shape=(n, n, n))
            x = jnp.mod(x + 0.5 * v, n)
            return (x, v), None

        (x, v), _ = jax.lax.scan(step, (x, v), None, 3)
        return cic_paint(jnp.zeros((n, n, n)), x), v

    return run, (x0, jnp.zeros_like(x0))


WORKLOADS: dict[str, Builder] = {
    "jaxoplanet-transit-lightcurve-grad": jaxoplanet_transit_lightcurve_grad,
    "galsim-sersic-moffat-convolved-draw": galsim_sersic_moffat_convolved_draw,
    "galsim-stamps-vmap-grad": galsim_stamps_vmap_grad,
    "diffmah-halo-population": diffmah_halo_population,
    "diffstar-sfh-population-grad": diffstar_sfh_population_grad,
    "jaxpm-particle-mesh-leapfrog": jaxpm_particle_mesh_leapfrog,
}

WORKLOADS_X64: dict[str, Builder] = {
    "jaxoplanet-keplerian-rv-lightcurve": jaxoplanet_keplerian_rv_lightcurve,
    "dsps-galaxy-sed-grad": dsps_galaxy_sed_grad,
    "jaxtronomy-lens-ray-shooting": jaxtronomy_lens_ray_shooting,
    "jaxtronomy-source-image-chi2-grad": jaxtronomy_source_image_chi2_grad,
    "ripplegw-imrphenomd-batch": ripplegw_imrphenomd_batch,
    "ripplegw-phenomd-likelihood-grad": ripplegw_phenomd_likelihood_grad,
    "ripplegw-phenompv2-fisher": ripplegw_phenompv2_fisher,
}
