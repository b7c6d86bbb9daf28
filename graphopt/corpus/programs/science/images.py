"""Image operations and signal processing."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, conv

IMAGE = Family("image")
SIGNAL = Family("signal")
FAMILIES = (IMAGE, SIGNAL)


def _shifted(x: Array, rows: int, columns: int) -> Array:
    """Shift f32[H, W, ...] and repeat the border."""
    height, width = x.shape[:2]
    pad = max(abs(rows), abs(columns))
    padded = jnp.pad(x, ((pad, pad), (pad, pad), *((0, 0) for _ in x.shape[2:])), mode="edge")
    return padded[pad + rows : pad + rows + height, pad + columns : pad + columns + width]


def _blur(x: Array, taps: tuple[float, ...]) -> Array:
    middle = len(taps) // 2
    zero = jnp.zeros_like(x)
    x = sum((tap * _shifted(x, i - middle, 0) for i, tap in enumerate(taps)), zero)
    return sum((tap * _shifted(x, 0, i - middle) for i, tap in enumerate(taps)), zero)


_GAUSS = (0.0614, 0.2448, 0.3876, 0.2448, 0.0614)


@IMAGE.program(
    "edge_detection", "blur, Sobel gradients, soft non-maximum suppression, f32[192,192]"
)
def _edge_detection() -> Built:
    def run(image: Array) -> Array:
        x = _blur(image, _GAUSS)
        dx = sum(
            w * (_shifted(x, r, 1) - _shifted(x, r, -1)) for r, w in ((-1, 1.0), (0, 2.0), (1, 1.0))
        )
        dy = sum(
            w * (_shifted(x, 1, c) - _shifted(x, -1, c)) for c, w in ((-1, 1.0), (0, 2.0), (1, 1.0))
        )
        size = jnp.sqrt(dx**2 + dy**2 + 1e-6)
        flat = jnp.abs(dx) / size
        along = flat * jnp.maximum(_shifted(size, 0, 1), _shifted(size, 0, -1))
        across = (1.0 - flat) * jnp.maximum(_shifted(size, 1, 0), _shifted(size, -1, 0))
        return size * jax.nn.sigmoid(8.0 * (size - along - across))

    return run, (Draws(0).uniform(192, 192),)


@IMAGE.program("bilateral_filter", "5x5 bilateral filter of f32[128,128,3]")
def _bilateral_filter() -> Built:
    def run(image: Array) -> Array:
        total, weights = jnp.zeros_like(image), jnp.zeros((*image.shape[:2], 1))
        for row in range(-2, 3):
            for column in range(-2, 3):
                near = _shifted(image, row, column)
                gap = jnp.sum((near - image) ** 2, axis=-1, keepdims=True)
                weight = jnp.exp(-8.0 * gap) * math.exp(-(row**2 + column**2) / 4.0)
                total, weights = total + weight * near, weights + weight
        return total / weights

    return run, (Draws(1).uniform(128, 128, 3),)


def _sample(image: Array, rows: Array, columns: Array) -> Array:
    """Bilinear samples of f32[H, W, C] with clamped coordinates."""
    height, width = image.shape[:2]
    rows, columns = jnp.clip(rows, 0.0, height - 1.001), jnp.clip(columns, 0.0, width - 1.001)
    top, left = jnp.floor(rows).astype(jnp.int32), jnp.floor(columns).astype(jnp.int32)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    upper = image[top, left] * (1.0 - right) + image[top, left + 1] * right
    lower = image[top + 1, left] * (1.0 - right) + image[top + 1, left + 1] * right
    return upper * (1.0 - down) + lower * down


def _warp(image: Array, angle: Array, zoom: Array) -> Array:
    side = image.shape[0]
    grid = jnp.arange(side, dtype=jnp.float32) - side / 2.0
    y, x = grid[:, None], grid[None]
    rows = zoom * (jnp.cos(angle) * y - jnp.sin(angle) * x) + side / 2.0
    columns = zoom * (jnp.sin(angle) * y + jnp.cos(angle) * x) + side / 2.0
    return _sample(image, rows, columns)


@IMAGE.program("affine_warp_batch", "rotation and zoom of f32[8,64,64,3] by bilinear gathers")
def _affine_warp_batch() -> Built:
    draws = Draws(2)
    args = (
        draws.uniform(8, 64, 64, 3),
        draws.normal(8, scale=0.4),
        draws.uniform(8, low=0.8, high=1.2),
    )
    return jax.vmap(_warp), args


@IMAGE.program(
    "registration_grad",
    "gradient of an alignment error in angle and zoom, f32[96,96,1]",
    gradient=True,
)
def _registration_grad() -> Built:
    def loss(angle: Array, zoom: Array, image: Array, goal: Array) -> Array:
        moved = _warp(image, angle, zoom)
        return jnp.mean((_blur(moved, _GAUSS) - goal) ** 2)

    draws = Draws(3)
    # Smooth images, and an angle that puts no sample on the border of a cell.
    ramp = np.linspace(0.0, 6.0, 96, dtype=np.float32)
    image = (np.sin(ramp)[:, None] * np.cos(1.3 * ramp)[None])[..., None]
    goal = image + draws.normal(96, 96, 1, scale=0.05)
    return jax.value_and_grad(loss, argnums=(0, 1)), (
        np.float32(0.1234),
        np.float32(1.017),
        image,
        goal,
    )


@IMAGE.program(
    "colour_jitter_hsv", "brightness, contrast, hue and saturation of f32[4,96,96,3] through HSV"
)
def _colour_jitter_hsv() -> Built:
    def run(images: Array, change: Array) -> Array:
        x = jnp.clip((images - 0.5) * change[0] + 0.5 + change[1], 0.0, 1.0)
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        value = jnp.maximum(jnp.maximum(r, g), b)
        chroma = value - jnp.minimum(jnp.minimum(r, g), b) + 1e-6
        hue = jnp.where(value == r, (g - b) / chroma % 6.0, (b - r) / chroma + 2.0)
        hue = jnp.where((value == b) & (value != r), (r - g) / chroma + 4.0, hue) + change[2]
        saturation = jnp.clip(chroma / (value + 1e-6) * change[3], 0.0, 1.0)
        parts = []
        for offset in (5.0, 3.0, 1.0):
            k = (offset + hue) % 6.0
            parts.append(value * (1.0 - saturation * jnp.clip(jnp.minimum(k, 4.0 - k), 0.0, 1.0)))
        return jnp.stack(parts, axis=-1)

    return run, (Draws(4).uniform(4, 96, 96, 3), np.array([1.2, 0.05, 0.3, 0.8], np.float32))


@IMAGE.program(
    "augment_batch",
    "per-image random crop, flip, cutout and normalisation, u8[32,40,40,3]",
    loops=True,
)
def _augment_batch() -> Built:
    def run(images: Array, seed: Array) -> Array:
        def one(image: Array, key: Array) -> Array:
            crop, flip, hole = jax.random.split(key, 3)
            corner = jax.random.randint(crop, (2,), 0, 9)
            x = lax.dynamic_slice(image, (corner[0], corner[1], 0), (32, 32, 3))
            x = jnp.where(jax.random.bernoulli(flip), x[:, ::-1], x).astype(jnp.float32) / 255.0
            centre = jax.random.randint(hole, (2,), 0, 32)
            rows, columns = jnp.arange(32)[:, None], jnp.arange(32)[None]
            cut = (jnp.abs(rows - centre[0]) < 5) & (jnp.abs(columns - centre[1]) < 5)
            x = jnp.where(cut[..., None], 0.5, x)
            return (x - jnp.mean(x)) * lax.rsqrt(jnp.var(x) + 1e-4)

        return jax.vmap(one)(images, jax.random.split(jax.random.key(seed), images.shape[0]))

    return run, (Draws(5).integers(256, 32, 40, 40, 3, dtype=np.uint8), np.uint32(6))


@IMAGE.program(
    "histogram_equalization",
    "256-bin histogram equalization of u8[4,128,128] by scatter and gather",
)
def _histogram_equalization() -> Built:
    def run(images: Array) -> Array:
        def one(image: Array) -> Array:
            counts = jnp.zeros(256, jnp.int32).at[image.ravel()].add(1)
            sums = jnp.cumsum(counts)
            table = (sums - sums[0]) * 255 // jnp.maximum(image.size - sums[0], 1)
            return table.astype(jnp.uint8)[image]

        return jax.vmap(one)(images)

    return run, (Draws(6).integers(256, 4, 128, 128, dtype=np.uint8),)


@IMAGE.program(
    "median_and_morphology", "3x3 median by an exchange network, opening and closing, f32[160,160]"
)
def _median_and_morphology() -> Built:
    def run(image: Array) -> Tree:
        v = [_shifted(image, r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)]
        pairs = ((1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3),
                 (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2))  # fmt: skip
        for i, j in pairs:
            v[i], v[j] = jnp.minimum(v[i], v[j]), jnp.maximum(v[i], v[j])
        median = v[4]

        def window(x: Array, worst: float, choose: Tree) -> Tree:
            return lax.reduce_window(x, worst, choose, (3, 3), (1, 1), "SAME")

        opened = window(window(median, jnp.inf, lax.min), -jnp.inf, lax.max)
        return median, window(window(opened, -jnp.inf, lax.max), jnp.inf, lax.min) - opened

    return run, (Draws(7).uniform(160, 160),)


@IMAGE.program(
    "ssim_grad",
    "structural similarity of two f32[2,64,64,3] images over 7x7 windows: gradient",
    gradient=True,
)
def _ssim_grad() -> Built:
    def loss(x: Array, y: Array) -> Array:
        def mean(z: Array) -> Tree:
            return lax.reduce_window(z, 0.0, lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "VALID") / 49.0

        mx, my = mean(x), mean(y)
        vx, vy, both = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
        above = (2.0 * mx * my + 0.01) * (2.0 * both + 0.03)
        return 1.0 - jnp.mean(above / ((mx**2 + my**2 + 0.01) * (vx + vy + 0.03)))

    draws = Draws(8)
    return jax.value_and_grad(loss), (draws.uniform(2, 64, 64, 3), draws.uniform(2, 64, 64, 3))


@IMAGE.program(
    "laplacian_pyramid_blend", "blending of two f32[96,96,3] images over three pyramid levels"
)
def _laplacian_pyramid_blend() -> Built:
    def run(left: Array, right: Array, mask: Array) -> Array:
        def down(x: Array) -> Array:
            return _blur(x, _GAUSS)[::2, ::2]

        def up(x: Array) -> Tree:
            return jax.image.resize(x, (2 * x.shape[0], 2 * x.shape[1], x.shape[2]), "linear")

        bands = []
        for _ in range(2):
            small = (down(left), down(right), down(mask))
            bands.append(mask * (left - up(small[0])) + (1.0 - mask) * (right - up(small[1])))
            left, right, mask = small
        out = mask * left + (1.0 - mask) * right
        for band in reversed(bands):
            out = up(out) + band
        return out

    draws = Draws(9)
    return run, (draws.uniform(96, 96, 3), draws.uniform(96, 96, 3), draws.uniform(96, 96, 1))


def _frames(x: Array, size: int, hop: int) -> Array:
    """Cut f32[N] into overlapping f32[frames, size]."""
    count = (x.shape[0] - size) // hop + 1
    return x[jnp.arange(count)[:, None] * hop + jnp.arange(size)[None]]


@SIGNAL.program(
    "mel_spectrogram",
    "log-mel features of f32[16000]: frames of 400, FFT, 40 filters, cosine transform",
)
def _mel_spectrogram() -> Built:
    draws = Draws(10)

    def run(x: Array, bank: Array, cosines: Array) -> Array:
        emphasized = x.at[1:].add(-0.97 * x[:-1])
        window = 0.54 - 0.46 * jnp.cos(2.0 * jnp.pi * jnp.arange(400) / 399.0)
        power = jnp.abs(jnp.fft.rfft(_frames(emphasized, 400, 160) * window)) ** 2
        logs = jnp.log(power @ bank + 1e-6)
        features = (logs - jnp.mean(logs, axis=0)) @ cosines
        slope: Tree = jnp.gradient(features, axis=0)
        return jnp.concatenate([features, slope], axis=1)

    cosines = np.cos(np.pi / 40 * np.outer(np.arange(40) + 0.5, np.arange(13))).astype(np.float32)
    return run, (draws.normal(16000), draws.uniform(201, 40) / 20.0, cosines)


@SIGNAL.program("fft_long_convolution", "gated long convolution by FFT of f32[8,2048]")
def _fft_long_convolution() -> Built:
    def run(x: Array, kernel: Array, gate: Array) -> Array:
        product = jnp.fft.rfft(x, 4096) * jnp.fft.rfft(kernel, 4096)
        return jax.nn.silu(gate) * jnp.fft.irfft(product, 4096)[:, :2048] + x

    draws = Draws(11)
    return run, (draws.normal(8, 2048), draws.normal(8, 2048, scale=0.05), draws.normal(8, 2048))


@SIGNAL.program(
    "biquad_cascade", "four second-order sections over f32[16] channels, 600 samples", loops=True
)
def _biquad_cascade() -> Built:
    def run(b: Array, a: Array, xs: Array) -> Array:
        def step(states: Array, x: Array) -> tuple[Array, Array]:
            fresh = []
            for section in range(4):
                s1, s2 = states[section]
                y = b[section, 0] * x + s1
                one = b[section, 1] * x - a[section, 0] * y + s2
                fresh.append(jnp.stack([one, b[section, 2] * x - a[section, 1] * y]))
                x = y
            return jnp.stack(fresh), x

        out: Array = lax.scan(step, jnp.zeros((4, 2, 16)), xs)[1]
        return out

    draws = Draws(12)
    return run, (
        draws.uniform(4, 3),
        draws.uniform(4, 2, low=-0.3, high=0.3),
        draws.normal(600, 16),
    )


@SIGNAL.program(
    "lms_echo_canceller",
    "normalized least-mean-squares filter of 48 taps over 500 samples",
    loops=True,
)
def _lms_echo_canceller() -> Built:
    def run(x: Array, desired: Array) -> Tree:
        def step(carry: Tree, now: Tree) -> tuple[Tree, Array]:
            taps, line = carry
            line = jnp.concatenate([now[0][None], line[:-1]])
            error = now[1] - jnp.sum(taps * line)
            return (taps + 0.3 * error * line / (jnp.sum(line**2) + 1.0), line), error

        zeros = jnp.zeros(48)
        return lax.scan(step, (zeros, zeros), (x, desired))

    draws = Draws(13)
    return run, (draws.normal(500), draws.normal(500))


@SIGNAL.program(
    "polyphase_filter_bank", "channelizer: 32 bands by polyphase filters and FFT of f32[65536]"
)
def _polyphase_filter_bank() -> Built:
    def run(x: Array, taps: Array) -> Tree:
        rows = x.reshape(-1, 32)
        padded = jnp.pad(rows, ((7, 0), (0, 0)))
        total = sum(
            (taps[i] * padded[i : i + rows.shape[0]] for i in range(8)), jnp.zeros_like(rows)
        )
        bands = jnp.fft.fft(total)
        power = bands.real**2 + bands.imag**2
        return jnp.mean(power, axis=0), jnp.angle(bands[1:, 1] * jnp.conj(bands[:-1, 1]))

    draws = Draws(14)
    return run, (
        draws.normal(65536) + np.sin(0.3 * np.arange(65536, dtype=np.float32)) * 2.0,
        draws.normal(8, 32),
    )


@SIGNAL.program("wavelet_denoise", "five Haar levels with soft thresholds, and back, f32[16,4096]")
def _wavelet_denoise() -> Built:
    def run(x: Array) -> Array:
        details = []
        for _ in range(5):
            even, odd = x[:, ::2], x[:, 1::2]
            detail = (even - odd) * math.sqrt(0.5)
            x = (even + odd) * math.sqrt(0.5)
            level = 1.5 * jnp.mean(jnp.abs(detail), axis=1, keepdims=True)
            details.append(jnp.sign(detail) * jnp.maximum(jnp.abs(detail) - level, 0.0))
        for detail in reversed(details):
            pair = jnp.stack([x + detail, x - detail], axis=-1) * math.sqrt(0.5)
            x = pair.reshape(x.shape[0], -1)
        return x

    return run, (Draws(15).normal(16, 4096),)


@SIGNAL.program(
    "learned_fir_grad",
    "gradient of an equalizer through three dilated filters, f32[4,1024,4]",
    gradient=True,
)
def _learned_fir_grad() -> Built:
    draws = Draws(16)

    def loss(kernels: Tree, x: Array, goal: Array) -> Array:
        for depth, kernel in enumerate(kernels):
            x = conv(x[:, None], kernel[None], padding="SAME", rhs_dilation=(1, 2**depth))[:, 0]
            x = x / jnp.sqrt(1.0 + x**2)
        return jnp.mean((x - goal) ** 2)

    kernels = [draws.normal(9, 4, 4, scale=0.2) for _ in range(3)]
    return jax.value_and_grad(loss), (kernels, draws.normal(4, 1024, 4), draws.normal(4, 1024, 4))
