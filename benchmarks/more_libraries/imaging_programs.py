"""Wavelets, image restoration, ultrasound and photoacoustics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def jaxwt_denoise_2d() -> Program:
    """Thirty-two images denoised by thresholds on wavelet coefficients."""
    import jaxwt

    x = jnp.asarray(np.random.default_rng(75).normal(size=(32, 128, 128)), jnp.float32)

    def run(x, thr):
        c = jaxwt.wavedec2(x, "db3", level=3)

        def soft(a):
            return jnp.sign(a) * jnp.maximum(jnp.abs(a) - thr, 0)

        c = [c[0]] + [
            type(d)(*map(soft, d)) if hasattr(d, "_fields") else tuple(map(soft, d)) for d in c[1:]
        ]
        return jaxwt.waverec2(c, "db3")

    return run, (x, jnp.float32(0.7))


def jaxwt_denoise_1d_grad() -> Program:
    """Loss of a wavelet denoiser, and its gradient in signal and threshold."""
    import jaxwt

    x = jnp.asarray(np.random.default_rng(77).normal(size=(16, 1024)), jnp.float32)

    def run(x, thr):
        def loss(x, thr):
            c = jaxwt.wavedec(x, "sym4", mode="reflect", level=4)
            c = [c[0]] + [jnp.sign(a) * jax.nn.softplus(jnp.abs(a) - thr) for a in c[1:]]
            y = jaxwt.waverec(c, "sym4")[..., :1024]
            return ((y - x) ** 2).mean() + 0.1 * jnp.abs(jnp.diff(y)).mean()

        return jax.value_and_grad(loss, (0, 1))(x, thr)

    return run, (x, jnp.float32(0.5))


def jaxwt_packets_swt_1d() -> Program:
    """Wavelet packets and the stationary wavelet transform of four signals."""
    import jaxwt

    x = jnp.asarray(np.random.default_rng(76).normal(size=(4, 512)), jnp.float32)

    def run(x):
        wp = jaxwt.WaveletPacket(x, "db2", mode="reflect", max_level=4)
        lv = jnp.stack([wp[n] for n in wp.get_level(4)])
        return jnp.log1p(jnp.abs(lv)), jaxwt.swt(x, "db2", level=3)

    return run, (x,)


def scico_tv_denoise_pdhg() -> Program:
    """Eight primal-dual steps of total variation denoising."""
    from scico import functional, linop, loss
    from scico.optimize import PDHG

    y = jnp.asarray(
        np.kron(np.random.default_rng(115).random((16, 16)), np.ones((16, 16)))
        + 0.1 * np.random.default_rng(116).normal(size=(256, 256)),
        jnp.float32,
    )

    def run(y):
        C = linop.FiniteDifference(input_shape=y.shape, append=0)
        s = PDHG(
            f=loss.SquaredL2Loss(y=y),
            g=0.1 * functional.L21Norm(),
            C=C,
            tau=0.3,
            sigma=0.3,
            x0=y,
            maxiter=10,
            itstat_options={"display": False},
        )
        for _ in range(8):
            s.step()
        return s.x, s.objective()

    return run, (y,)


def scico_deconvolve_pgm() -> Program:
    """Eight accelerated proximal gradient steps of sparse deconvolution."""
    from scico import functional, linop, loss
    from scico.optimize.pgm import AcceleratedPGM

    y = jnp.asarray(np.random.default_rng(117).random((128, 128)), jnp.float32)

    def run(y):
        A = linop.CircularConvolve(h=jnp.ones((5, 5)) / 25.0, input_shape=y.shape)
        s = AcceleratedPGM(
            f=loss.SquaredL2Loss(y=y, A=A),
            g=0.01 * functional.L1Norm(),
            L0=1.0,
            x0=y,
            maxiter=10,
            itstat_options={"display": False},
        )
        for _ in range(8):
            s.step()
        return s.x

    return run, (y,)


def jaxus_das_beamform() -> Program:
    """An ultrasound image by delay-and-sum beamforming."""
    from jaxus.beamforming.beamform import get_f_number_mask, hann, log_compress, tof_correct_pixel

    rng = np.random.default_rng(83)
    nel, ns = 32, 400

    def single(a):
        return jnp.asarray(a, jnp.float32)

    geom = np.stack([(np.arange(nel) - nel / 2 + 0.5) * 3e-4, np.zeros(nel)], 1)
    px = np.stack(
        np.meshgrid(np.linspace(-5e-3, 5e-3, 96), np.linspace(3e-3, 1.2e-2, 160), indexing="ij"), -1
    ).reshape(-1, 2)
    rf = np.sin(np.arange(ns) * 0.9)[:, None] * np.exp(
        -(((np.arange(ns)[:, None] - 150 - 2 * np.arange(nel)[None]) / 40.0) ** 2)
    ) + 0.05 * rng.normal(size=(ns, nel))

    def run(rf, px, geom, t0):
        def pixel(p):
            tof = tof_correct_pixel(
                rf, p, t0, 0.0, 1540.0, 1540.0, 1e-12, 2e-7, geom, 6.25e6, 2.5e7, jnp.ones(nel)
            )
            return (tof * get_f_number_mask(p, geom, 1.0, hann)).sum()

        im = jax.vmap(pixel)(px)
        return log_compress(jnp.abs(im.reshape(96, 160)) + 0.05, normalize=True)

    return run, (single(rf), single(px), single(geom), jnp.zeros(nel))


def jwave_photoacoustic_2d() -> Program:
    """Pressure at a line of sensors after a photoacoustic pulse in two dimensions."""
    from jaxdf import FourierSeries
    from jwave.acoustics import TimeWavePropagationSettings, simulate_wave_propagation
    from jwave.geometry import Domain, Medium, TimeAxis

    dom = Domain((96, 96), (1e-4, 1e-4))
    g = np.hypot(*np.mgrid[-48:48, -48:48])
    p0 = jnp.asarray((g < 6).astype(np.float32))[..., None]
    c = jnp.asarray(1500.0 + 100 * (g < 20), jnp.float32)[..., None]
    ta = TimeAxis(dt=2e-8, t_end=2.4e-6)

    def run(p0, c):
        med = Medium(domain=dom, sound_speed=FourierSeries(c, dom), density=1000.0, pml_size=10)
        out = simulate_wave_propagation(
            med,
            ta,
            p0=FourierSeries(p0, dom),
            sensors=lambda p, u, rho: p.on_grid[::8, 12, 0],
            settings=TimeWavePropagationSettings(c_ref=lambda m: 1600.0, checkpoint=False),
        )
        return out

    return run, (p0, c)


def jwave_time_reversal_grad_1d() -> Program:
    """Misfit of recorded sound, and its gradient in the initial pressure."""
    from jaxdf import FourierSeries
    from jwave.acoustics import TimeWavePropagationSettings, simulate_wave_propagation
    from jwave.geometry import Domain, Medium, TimeAxis

    dom = Domain((256,), (1e-4,))
    x = np.arange(256)
    p0 = jnp.asarray(np.exp(-(((x - 100) / 8.0) ** 2)), jnp.float32)[:, None]
    ta = TimeAxis(dt=2e-8, t_end=2e-6)

    def run(p0, target):
        def loss(p0):
            med = Medium(domain=dom, sound_speed=1500.0, density=1000.0, pml_size=20)
            out = simulate_wave_propagation(
                med,
                ta,
                p0=FourierSeries(p0, dom),
                sensors=lambda p, u, rho: p.on_grid[112:122, 0],
                settings=TimeWavePropagationSettings(c_ref=lambda m: 1500.0),
            )
            return jnp.mean((out - target) ** 2)

        return jax.value_and_grad(loss)(p0)

    return run, (p0, jnp.zeros((100, 10), jnp.float32))


WORKLOADS: dict[str, Builder] = {
    "jaxwt-denoise-2d": jaxwt_denoise_2d,
    "jaxwt-denoise-1d-grad": jaxwt_denoise_1d_grad,
    "jaxwt-packets-swt-1d": jaxwt_packets_swt_1d,
    "scico-tv-denoise-pdhg": scico_tv_denoise_pdhg,
    "scico-deconvolve-pgm": scico_deconvolve_pgm,
    "jaxus-das-beamform": jaxus_das_beamform,
    "jwave-photoacoustic-2d": jwave_photoacoustic_2d,
    "jwave-time-reversal-grad-1d": jwave_time_reversal_grad_1d,
}
