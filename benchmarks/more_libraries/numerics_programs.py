"""Probabilistic ODE solvers, signatures, quadrature, interpolation, neighbours and spheres."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def _probdiffeq(vf, u0, num, strategy, adaptive=True):
    """A probabilistic ODE solver for a vector field, and its prior."""
    from probdiffeq import ivpsolve
    from probdiffeq import probdiffeq as pde

    ode = pde.ode(vf)
    tc, _ = pde.jetexpand_ode_padded_scan(num=num)(ode, [u0], t=0.0)
    ssm = pde.state_space_model_isotropic()
    prior = ssm.prior_wiener_integrated(tc)
    ts0 = ssm.constraint_ode_ts0(ode)
    solver = pde.solver_mle(strategy=strategy(pde), constraint=ts0)
    if not adaptive:
        return ivpsolve.solve_fixed_grid(solver=solver), prior
    err = pde.error_residual_std(constraint=ts0)
    return ivpsolve.solve_adaptive_save_at(solver=solver, error=err, warn=False), prior


def probdiffeq_lotka_volterra_adaptive() -> Program:
    """Predator-prey equations by an adaptive probabilistic smoother."""

    def run(u0, t, k):
        def vf(y, /, *, t):
            return jnp.stack([k[0] * y[0] - k[1] * y[0] * y[1], -k[0] * y[1] + k[1] * y[0] * y[1]])

        solve, prior = _probdiffeq(vf, u0, 3, lambda p: p.strategy_smoother_fixedpoint())
        s = solve(prior, save_at=t, atol=1e-4, rtol=1e-4)
        # The first derivative's std is nothing but rounding.
        return s.u.mean, s.u.std[0], s.u.std[2:]

    return run, (jnp.array([20.0, 20.0]), jnp.linspace(0.0, 8.0, 30), jnp.array([0.5, 0.05]))


def probdiffeq_heat_equation_fixed_grid_filter() -> Program:
    """A reaction-diffusion equation by a probabilistic filter with fixed steps."""

    def run(u0, grid):
        def vf(y, /, *, t):
            return 0.5 * (jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y) + 0.1 * y * (1 - y)

        solve, prior = _probdiffeq(vf, u0, 2, lambda p: p.strategy_filter(), adaptive=False)
        s = solve(prior, grid=grid)
        # The first derivative's std is nothing but rounding.
        return s.u.mean, s.u.std[0], s.u.std[2:]

    return run, (jnp.asarray(np.exp(-(np.linspace(-3, 3, 200) ** 2))), jnp.linspace(0.0, 4.0, 101))


def signax_signature_batch_grad() -> Program:
    """Signatures of 128 paths up to level four, and their gradient."""
    import signax

    x = jnp.asarray(
        np.cumsum(np.random.default_rng(65).normal(size=(128, 100, 4)) * 0.1, 1), jnp.float32
    )

    def run(x):
        return jax.value_and_grad(lambda x: (signax.signature(x, 4) ** 2).sum())(x)

    return run, (x,)


def signax_logsignature() -> Program:
    """Log signatures of sixteen paths up to level four."""
    import signax

    x = jnp.asarray(
        np.cumsum(np.random.default_rng(66).normal(size=(16, 50, 3)) * 0.1, 1), jnp.float32
    )

    def run(x):
        return signax.logsignature(x, 4)

    return run, (x,)


def quadax_adaptive_gk_batch() -> Program:
    """Sixteen improper integrals by adaptive quadrature, with gradients."""
    import quadax

    def run(a):
        def one(a):
            y, _ = quadax.quadgk(
                lambda x: jnp.exp(-x * a) * jnp.sin(10 * x) / (1 + x**2),
                jnp.array([0.0, jnp.inf]),
                epsabs=1e-8,
                epsrel=1e-8,
            )
            return y

        return jax.vmap(jax.value_and_grad(one))(a)

    return run, (jnp.linspace(0.5, 2.0, 16),)


def interpax_cubic_spline_2d_grad() -> Program:
    """Two-dimensional spline at 5000 points, and its gradient."""
    import interpax

    rng = np.random.default_rng(69)
    x = jnp.linspace(0.0, 1.0, 64)
    f = jnp.asarray(rng.normal(size=(64, 64)), jnp.float32)
    q = jnp.asarray(rng.uniform(0.02, 0.98, (2, 5000)), jnp.float32)

    def run(q, x, f):
        def loss(q, f):
            return (interpax.interp2d(q[0], q[1], x, x, f, method="cubic2") ** 2).mean()

        return jax.value_and_grad(loss, (0, 1))(q, f)

    return run, (q, x, f)


def interpax_pchip_akima_1d() -> Program:
    """Six interpolants of one series, with a derivative and an integral."""
    import interpax

    x = jnp.linspace(0.0, 10.0, 80)
    y = jnp.asarray(np.cumsum(np.random.default_rng(70).normal(size=80)), jnp.float32)
    q = jnp.linspace(0.01, 9.99, 1500)

    def run(q, x, y):
        curves = [
            interpax.interp1d(q, x, y, method=m)
            for m in ("cubic", "monotonic", "akima", "cardinal")
        ]
        slope = interpax.PchipInterpolator(x, y, check=False)(q, 1)
        return *curves, slope, interpax.CubicSpline(x, y, check=False).integrate(0.0, 5.0)

    return run, (q, x, y)


def orthax_gauss_legendre_series() -> Program:
    """Legendre, Chebyshev and Hermite series on a grid."""
    import orthax

    rng = np.random.default_rng(71)
    c = jnp.asarray(rng.normal(size=(20, 20)))
    x = jnp.linspace(-1, 1, 200)

    def run(c, x):
        v = orthax.legendre.leggrid2d(x, x, c)
        d = orthax.legendre.legder(c, 1, axis=0)
        ch = orthax.chebyshev.chebfit(x, v[:, 0], 12)
        return (
            v,
            orthax.legendre.leggrid2d(x, x, d),
            orthax.chebyshev.chebval(x, ch),
            orthax.hermite.hermval(x, c[0]),
        )

    return run, (c, x)


def jaxkd_build_and_knn() -> Program:
    """A k-d tree of 4000 points, its nearest neighbours and counts."""
    import jaxkd

    rng = np.random.default_rng(72)
    p = jnp.asarray(rng.random((4000, 3)), jnp.float32)
    q = jnp.asarray(rng.random((500, 3)), jnp.float32)

    def run(p, q):
        t = jaxkd.build_tree(p)
        i, d = jaxkd.query_neighbors(t, q, k=8)
        return i, d, jaxkd.count_neighbors(t, q, r=0.08)

    return run, (p, q)


def jaxkd_kmeans_clusters() -> Program:
    """Ten steps of k-means clustering on 2000 points."""
    from jaxkd import extras

    p = jnp.asarray(np.random.default_rng(73).normal(size=(2000, 2)), jnp.float32)

    def run(p, key):
        return extras.k_means(key, p, k=8, steps=10)

    return run, (p, jax.random.PRNGKey(73))


def jaxkd_large_friends_knn() -> Program:
    """Sixteen nearest neighbours of 4000 among 20000 points, with local densities."""
    import jaxkd

    p = jnp.asarray(np.random.default_rng(137).normal(size=(20000, 3)), jnp.float32)

    def run(p):
        _, d = jaxkd.build_and_query(p, p[:4000], k=16)
        # Not the indices: near ties may swap.
        return d, 1 / (d[:, -1] ** 3 + 1e-6)

    return run, (p,)


def jaxhealpy_rotate_interp_map() -> Program:
    """A map of the sphere, rotated and interpolated."""
    import jax_healpy as hp

    ns = 64
    rng = np.random.default_rng(74)
    m = jnp.asarray(rng.normal(size=12 * ns * ns))

    def run(m, ang):
        th, ph = hp.pix2ang(ns, jnp.arange(12 * ns * ns))
        v = hp.ang2vec(th, ph)
        c, s = jnp.cos(ang), jnp.sin(ang)
        R = jnp.array([[1.0, 0, 0], [0, c, -s], [0, s, c]])
        t2, p2 = hp.vec2ang(v @ R)
        return (
            hp.get_interp_val(m, t2, p2),
            hp.ang2pix(ns, t2, p2),
            hp.ring2nest(ns, jnp.arange(12 * ns * ns)),
        )

    return run, (m, jnp.array(0.3))


WORKLOADS: dict[str, Builder] = {
    "signax-signature-batch-grad": signax_signature_batch_grad,
    "signax-logsignature": signax_logsignature,
    "interpax-cubic-spline-2d-grad": interpax_cubic_spline_2d_grad,
    "interpax-pchip-akima-1d": interpax_pchip_akima_1d,
    "jaxkd-build-and-knn": jaxkd_build_and_knn,
    "jaxkd-kmeans-clusters": jaxkd_kmeans_clusters,
    "jaxkd-large-friends-knn": jaxkd_large_friends_knn,
}

WORKLOADS_X64: dict[str, Builder] = {
    "probdiffeq-lotka-volterra-adaptive": probdiffeq_lotka_volterra_adaptive,
    "probdiffeq-heat-equation-fixed-grid-filter": probdiffeq_heat_equation_fixed_grid_filter,
    "quadax-adaptive-gk-batch": quadax_adaptive_gk_batch,
    "orthax-gauss-legendre-series": orthax_gauss_legendre_series,
    "jaxhealpy-rotate-interp-map": jaxhealpy_rotate_interp_map,
}
