"""Signals, textures and codes of pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.common import Program, Sizes, normal, picture, uniform


def spectrogram(length: int, frame: int) -> Program:
    """Frames by gather, a window, transforms, a bank of mel filters, cepstra; and a brick-wall filter."""
    mels = 26

    def run(signal: jax.Array, bank: jax.Array) -> Any:
        hop = frame // 4
        starts = jnp.arange(0, length - frame + 1, hop)
        frames = signal[starts[:, None] + jnp.arange(frame)[None, :]]
        emphasised = frames - 0.97 * jnp.pad(frames, ((0, 0), (1, 0)), mode="edge")[:, :-1]
        power = jnp.abs(jnp.fft.rfft(emphasised * jnp.hanning(frame))) ** 2 / frame
        decibels = 10 * jnp.log10(jnp.maximum(power @ bank, 1e-10))
        k, n = jnp.arange(13)[:, None], jnp.arange(mels)[None, :]
        cepstra = decibels @ jnp.cos(jnp.pi * k * (2 * n + 1) / (2 * mels)).T
        delta = (cepstra[2:] - cepstra[:-2]) / 2
        spectrum = jnp.fft.rfft(signal)
        frequency = jnp.fft.rfftfreq(length)
        passed = jnp.fft.irfft(
            jnp.where((frequency > 0.01) & (frequency < 0.1), spectrum, 0), length
        )
        return (cepstra - cepstra.mean(0)) / (cepstra.std(0) + 1e-6), delta, passed

    t = np.arange(length)
    wave = np.sin(0.1 * t + 3 * np.sin(0.001 * t)) + 0.1 * np.random.default_rng(0).normal(
        size=length
    )
    peaks = np.linspace(0, frame // 2, mels + 2)
    f = np.arange(frame // 2 + 1)[:, None]
    width = peaks[1] - peaks[0]
    bank = np.maximum(0, 1 - np.abs(f - peaks[1:-1]) / width)
    return run, (jnp.asarray(wave, jnp.float32), jnp.asarray(bank, jnp.float32))


def biquads(length: int, channels: int) -> Program:
    """A FIR filter, then a chain of second-order sections by a scan, an envelope, and a compressor."""
    sections = np.array(
        [[0.2, 0.4, 0.2, -0.6, 0.3], [0.5, -0.3, 0.2, -0.4, 0.2], [0.3, 0.1, 0.3, 0.2, 0.1]]
    )

    def run(x: jax.Array, taps: jax.Array) -> Any:
        x = jax.vmap(lambda c: jnp.convolve(c, taps, mode="same"), in_axes=1, out_axes=1)(x)

        def step(state: Any, sample: jax.Array) -> Any:
            delays, envelope = state
            new = []
            for (b0, b1, b2, a1, a2), (z1, z2) in zip(sections.tolist(), delays, strict=True):
                out = b0 * sample + z1
                new.append((b1 * sample - a1 * out + z2, b2 * sample - a2 * out))
                sample = out
            level = jnp.abs(sample)
            rate = jnp.where(level > envelope, 0.2, 0.01)
            envelope = envelope + rate * (level - envelope)
            gain = jnp.where(envelope > 0.1, (envelope / 0.1) ** -0.5, 1.0)
            return (new, envelope), sample * gain

        zero = jnp.zeros(channels)
        return lax.scan(step, ([(zero, zero)] * len(sections), zero), x)[1]

    return run, (normal(length, channels), jnp.asarray(np.hanning(31) / 15, jnp.float32))


def morphology(size: int, steps: int) -> Program:
    """A median of nine by sorting, opening and closing by windows, distances by repeated minima."""

    def window(x: jax.Array, init: float, op: Callable[..., Any]) -> jax.Array:
        return lax.reduce_window(x, init, op, (3, 3), (1, 1), "SAME")

    def run(image: jax.Array) -> Any:
        p = jnp.pad(image, 1, mode="edge")
        shifts = [p[i : i + size, j : j + size] for i in range(3) for j in range(3)]
        median = jnp.sort(jnp.stack(shifts), axis=0)[4]
        dilate, erode = (
            (lambda x: window(x, -jnp.inf, lax.max)),
            (lambda x: window(x, jnp.inf, lax.min)),
        )
        opened = dilate(erode(median))
        closed = erode(dilate(opened))
        mask = closed > jnp.mean(closed)

        def relax(_: Any, d: jax.Array) -> jax.Array:
            q = jnp.pad(d, 1, constant_values=1e4)
            near = (
                jnp.minimum(
                    jnp.minimum(q[:-2, 1:-1], q[2:, 1:-1]), jnp.minimum(q[1:-1, :-2], q[1:-1, 2:])
                )
                + 1.0
            )
            far = (
                jnp.minimum(
                    jnp.minimum(q[:-2, :-2], q[2:, 2:]), jnp.minimum(q[:-2, 2:], q[2:, :-2])
                )
                + 1.4142
            )
            return jnp.minimum(d, jnp.minimum(near, far))

        distance = lax.fori_loop(0, steps, relax, jnp.where(mask, 1e4, 0.0))
        return closed - opened, dilate(median) - erode(median), distance

    return run, (picture(size),)


def perlin(size: int, octaves: int) -> Program:
    """Fractal gradient noise from a table of permutations, ridged, with its slopes by a second evaluation."""

    def noise(table: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        xi, yi = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
        xf, yf = x - xi, y - yi
        u, v = (t * t * t * (t * (t * 6 - 15) + 10) for t in (xf, yf))

        def corner(i: int, j: int) -> jax.Array:
            h = table[(table[(xi + i) & 255] + yi + j) & 255]
            angle = h * (2 * jnp.pi / 256)
            return jnp.cos(angle) * (xf - i) + jnp.sin(angle) * (yf - j)

        low = corner(0, 0) + u * (corner(1, 0) - corner(0, 0))
        high = corner(0, 1) + u * (corner(1, 1) - corner(0, 1))
        return low + v * (high - low)

    def run(table: jax.Array) -> Any:
        y, x = jnp.meshgrid(jnp.linspace(0, 4, size), jnp.linspace(0, 4, size), indexing="ij")

        def octave(i: Any, state: Any) -> Any:
            total, amplitude, frequency = state
            ridge = 1 - jnp.abs(noise(table, x * frequency, y * frequency))
            return total + amplitude * ridge**2, amplitude * 0.5, frequency * 2.0

        height, *_ = lax.fori_loop(
            0, octaves, octave, (jnp.zeros_like(x), jnp.float32(0.5), jnp.float32(1.0))
        )
        dy, dx = jnp.gradient(height)
        normal = jnp.stack([-dx * size, -dy * size, jnp.full_like(dx, 8.0)], axis=-1)
        normal = normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)
        return height, jnp.clip(normal @ jnp.array([0.5, 0.5, 0.7]), 0.0, 1.0)

    return run, (jnp.asarray(np.random.default_rng(0).permutation(256), jnp.int32),)


def jpeg(size: int, quality: int) -> Program:
    """Blocks of eight by eight through the cosine transform, quantised, in zigzag, and back."""
    k, n = np.arange(8)[:, None], np.arange(8)[None, :]
    basis = np.where(k == 0, 8**-0.5, 0.5) * np.cos(np.pi * k * (2 * n + 1) / 16)
    zigzag = np.array(
        sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8) * (-1) ** (i // 8 + i % 8 + 1)))
    )

    def run(rgb: jax.Array, table: jax.Array) -> Any:
        d = jnp.asarray(basis, jnp.float32)
        r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
        y = 0.299 * r + 0.587 * g + 0.114 * b
        cb, cr = 0.564 * (b - y) + 128, 0.713 * (r - y) + 128
        small = [c.reshape(size // 2, 2, size // 2, 2).mean(axis=(1, 3)) for c in (cb, cr)]

        def code(plane: jax.Array) -> Any:
            m = plane.shape[0] // 8
            blocks = (plane - 128.0).reshape(m, 8, m, 8).transpose(0, 2, 1, 3)
            q = jnp.round(jnp.einsum("ui,abij,vj->abuv", d, blocks, d) / table)
            back = jnp.einsum("ui,abuv,vj->abij", d, q * table, d)
            series = q.reshape(m * m, 64)[:, zigzag].astype(jnp.int32)
            ends = 64 - jnp.argmax((series != 0)[:, ::-1], axis=1)
            return back.transpose(0, 2, 1, 3).reshape(plane.shape) + 128.0, ends

        (y2, ends), (cb2, _), (cr2, _) = map(code, (y, *small))
        cb2, cr2 = (jnp.repeat(jnp.repeat(c, 2, axis=0), 2, axis=1) - 128 for c in (cb2, cr2))
        out = jnp.stack(
            [y2 + 1.403 * cr2, y2 - 0.344 * cb2 - 0.714 * cr2, y2 + 1.773 * cb2], axis=-1
        )
        out = jnp.clip(out, 0, 255)
        return (
            out.astype(jnp.uint8),
            10 * jnp.log10(255.0**2 / (jnp.mean((out - rgb) ** 2) + 1e-6)),
            ends,
        )

    gray = np.asarray(picture(size))
    rgb = jnp.asarray(255 * np.stack([gray, gray.T, 1 - gray], axis=-1), jnp.float32)
    return run, (rgb, jnp.asarray(quality * (1 + k + n), jnp.float32))


def splatting(size: int, count: int) -> Program:
    """Gaussian blobs blended front to back in a scan, and the gradient of an error by all of them."""

    def render(p: Any) -> jax.Array:
        y, x = jnp.meshgrid(jnp.linspace(0, 1, size), jnp.linspace(0, 1, size), indexing="ij")

        def blend(state: Any, blob: Any) -> Any:
            image, light = state
            center, scale, angle, color, opacity = blob
            dx, dy = x - center[0], y - center[1]
            c, s = jnp.cos(angle), jnp.sin(angle)
            a, b = (c * dx + s * dy) / jnp.exp(scale[0]), (c * dy - s * dx) / jnp.exp(scale[1])
            alpha = jnp.minimum(jax.nn.sigmoid(opacity) * jnp.exp(-0.5 * (a * a + b * b)), 0.99)
            return (
                image + (light * alpha)[..., None] * jax.nn.sigmoid(color),
                light * (1 - alpha),
            ), None

        start = (jnp.zeros((size, size, 3)), jnp.ones((size, size)))
        return lax.scan(
            blend, start, (p["center"], p["scale"], p["angle"], p["color"], p["opacity"])
        )[0][0]

    def loss(p: Any, target: jax.Array) -> jax.Array:
        return jnp.mean(jnp.abs(render(p) - target))

    p = {
        "center": uniform(count, 2),
        "scale": normal(count, 2, scale=0.2) - 2.5,
        "angle": uniform(count, high=3.1),
    }
    p |= {"color": normal(count, 3, seed=1), "opacity": normal(count, seed=2)}
    return jax.value_and_grad(loss), (p, jnp.stack([picture(size)] * 3, axis=-1))


SIZES: Final[Sizes] = {
    ("spectrogram", spectrogram): ((16_000, 256), (96_000, 512)),
    ("biquads", biquads): ((4_000, 2), (6_000, 32)),
    ("morphology", morphology): ((64, 30), (224, 40)),
    ("perlin", perlin): ((96, 5), (320, 5)),
    ("jpeg", jpeg): ((176, 6), (512, 6)),
    ("splatting", splatting): ((32, 40), (64, 80)),
}
