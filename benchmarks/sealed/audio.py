"""Sound: filters that run sample by sample, short-time spectra and linear prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def _tones(count: int, *frequencies: float) -> Any:
    t = np.arange(count)
    return sum(jnp.asarray(np.sin(2 * np.pi * f * t)) for f in frequencies)


def _frames(signal: Any, size: int, hop: int) -> Any:
    """Overlapping windows of a signal, one a row."""
    count = (signal.shape[-1] - size) // hop + 1
    return signal[jnp.arange(count)[:, None] * hop + jnp.arange(size)[None, :]]


def _hann(size: int) -> Any:
    return 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(size) / size)


def telephone_tones() -> Program:
    """Strengths of the eight telephone tones in blocks of sound, by Goertzel's recurrence."""
    block = 205

    def fn(sound: Any, frequencies: Any) -> Any:
        turn = 2 * jnp.cos(2 * jnp.pi * frequencies)

        def strength(samples: Any) -> Any:
            def advance(i: Any, state: Any) -> Any:
                last, before = state
                return samples[i] + turn * last - before, last

            zero = jnp.zeros_like(turn)
            a, b = lax.fori_loop(0, block, advance, (zero, zero))
            return a**2 + b**2 - turn * a * b

        power = jax.vmap(strength)(sound.reshape(-1, block))
        return power / jnp.sum(power, axis=1, keepdims=True)

    frequencies = jnp.asarray([697, 770, 852, 941, 1209, 1336, 1477, 1633]) / 8000
    sound = _tones(16 * block, 770 / 8000, 1336 / 8000) + 0.1 * normal(1, 16 * block)
    return fn, (sound, frequencies)


def _levinson(correlation: Any, order: int) -> Any:
    """Predictor coefficients and the error left, from an autocorrelation."""

    def grow(m: Any, state: Any) -> Any:
        a, error = state
        index = jnp.arange(order + 1)
        lags = jnp.where(index <= m, jnp.abs(m - index), 0)
        gap = jnp.sum(jnp.where(index <= m, a * correlation[lags], 0.0))
        reflection = -gap / error
        mirrored = jnp.where(index <= m, a[lags], 0.0)
        return a + reflection * mirrored, error * (1 - reflection**2)

    start = (jnp.zeros(order + 1, correlation.dtype).at[0].set(1.0), correlation[0])
    return lax.fori_loop(1, order + 1, grow, start)


def linear_prediction() -> Program:
    """Linear prediction of speech frames by Levinson's recursion, and the spectra it implies."""
    order, size = 10, 240

    def fn(sound: Any, emphasis: Any) -> Any:
        raised = sound[1:] - emphasis * sound[:-1]
        frames = _frames(raised, size, 120) * _hann(size)
        lagged = [jnp.sum(frames[:, : size - k] * frames[:, k:], -1) for k in range(order + 1)]
        correlation = jnp.stack(lagged, axis=1)
        correlation = correlation.at[:, 0].multiply(1.001) + 1e-6
        coefficients, errors = jax.vmap(lambda r: _levinson(r, order))(correlation)
        response = jnp.fft.rfft(coefficients, 128)
        return coefficients, jnp.log(errors) - jnp.log(jnp.abs(response) ** 2 + 1e-6).mean(1)

    sound = _tones(2000, 0.02, 0.06, 0.11) + 0.3 * normal(2, 2000)
    return fn, (sound, jnp.asarray(0.9))


def mel_features() -> Program:
    """Cepstral features of a second of sound with their differences over time, normalised."""
    size, bands, kept = 400, 40, 13

    def fn(sound: Any, filters: Any, floor: Any) -> Any:
        frames = _frames(sound, size, 160) * _hann(size)
        power = jnp.abs(jnp.fft.rfft(frames, 512)) ** 2 / size
        energy = jnp.log(jnp.maximum(power @ filters, floor))
        k = jnp.arange(kept)[None, :]
        basis = jnp.cos(jnp.pi * k * (jnp.arange(bands)[:, None] + 0.5) / bands)
        cepstra = energy @ basis * jnp.sqrt(2 / bands)
        padded = jnp.pad(cepstra, ((2, 2), (0, 0)), mode="edge")
        frames_out = cepstra.shape[0]
        slopes = sum(
            n * (padded[2 + n : 2 + n + frames_out] - padded[2 - n : 2 - n + frames_out])
            for n in (1, 2)
        )
        features = jnp.concatenate([cepstra, slopes / 10], axis=1)
        return (features - features.mean(0)) / (features.std(0) + 1e-3)

    centres = 700 * (np.exp(np.linspace(0.05, 2.4, bands + 2)) - 1) / 16_000 * 512
    bins = np.arange(257)[:, None]
    rising = (bins - centres[:-2]) / (centres[1:-1] - centres[:-2])
    falling = (centres[2:] - bins) / (centres[2:] - centres[1:-1])
    filters = np.clip(np.minimum(rising, falling), 0, None)
    sound = _tones(16_000, 0.013, 0.031) + 0.5 * normal(3, 16_000)
    return fn, (sound, jnp.asarray(filters), jnp.asarray(1e-4))


def spectral_denoiser() -> Program:
    """Noise taken off by a smoothed Wiener gain in overlapping spectra, then added up again."""
    size, hop = 512, 128

    def fn(sound: Any, noise: Any, floor: Any) -> Any:
        window = jnp.sqrt(_hann(size))
        noise_power = jnp.mean(jnp.abs(jnp.fft.rfft(_frames(noise, size, hop) * window)) ** 2, 0)
        spectra = jnp.fft.rfft(_frames(sound, size, hop) * window)

        def track(last: Any, spectrum: Any) -> Any:
            power = jnp.abs(spectrum) ** 2 / noise_power
            prior = 0.9 * last + 0.1 * jnp.maximum(power - 1, 0.0)
            gain = jnp.maximum(prior / (1 + prior), floor)
            return gain**2 * power, gain * spectrum

        _, cleaned = lax.scan(track, jnp.ones_like(noise_power), spectra)
        frames = jnp.fft.irfft(cleaned, size) * window
        places = jnp.arange(frames.shape[0])[:, None] * hop + jnp.arange(size)[None, :]
        total = jnp.zeros_like(sound).at[places].add(frames)
        weight = jnp.zeros_like(sound).at[places].add(jnp.broadcast_to(window**2, frames.shape))
        return total / jnp.maximum(weight, 0.1)

    sound = _tones(24_000, 0.01, 0.024) + 0.4 * normal(4, 24_000)
    return fn, (sound, 0.4 * normal(5, 4000), jnp.asarray(0.05))


def echo_canceller() -> Program:
    """An echo removed by a normalised least-mean-squares filter that adapts at every sample."""
    taps = 128

    def fn(far: Any, microphone: Any, rate: Any) -> Any:
        def sample(carry: Any, inputs: Any) -> Any:
            weights, recent = carry
            newest, heard = inputs
            recent = jnp.roll(recent, 1).at[0].set(newest)
            error = heard - jnp.dot(weights, recent)
            power = jnp.dot(recent, recent) + 1e-2
            weights = weights + rate * error * recent / power
            return (weights, recent), error

        start = (jnp.zeros(taps), jnp.zeros(taps))
        (weights, _), errors = lax.scan(sample, start, (far, microphone))
        loss = 10 * jnp.log10(jnp.mean(errors.reshape(-1, 500) ** 2, 1) + 1e-4)
        return weights, errors, loss

    far = np.random.default_rng(6).standard_normal(12_000)
    room = np.random.default_rng(7).standard_normal(100) * np.exp(-np.arange(100) / 20)
    heard = np.convolve(far, room)[:12_000] + 0.1 * np.random.default_rng(8).standard_normal(12_000)
    return fn, (jnp.asarray(far), jnp.asarray(heard), jnp.asarray(0.3))


def delay_reverb() -> Program:
    """Reverberation by a network of eight delay lines with damping, mixed by a rotation."""
    lines, longest = 8, 512

    def fn(sound: Any, delays: Any, mixing: Any, damping: Any, decay: Any) -> Any:
        rows = jnp.arange(lines)

        def sample(carry: Any, inputs: Any) -> Any:
            buffers, smooth = carry
            i, x = inputs
            late = buffers[rows, (i - delays) % longest]
            smooth = (1 - damping) * late + damping * smooth
            fed = decay * (mixing @ smooth) + x
            buffers = buffers.at[:, i % longest].set(fed)
            left = jnp.sum(jnp.where(rows % 2 == 0, smooth, 0.0))
            right = jnp.sum(jnp.where(rows % 2 == 1, smooth, 0.0))
            return (buffers, smooth), jnp.stack([left, right]) / lines + 0.5 * x

        start = (jnp.zeros((lines, longest)), jnp.zeros(lines))
        times = jnp.arange(sound.shape[0])
        return lax.scan(sample, start, (times, sound))[1]

    hadamard = np.array([[1.0]])
    for _ in range(3):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    count = 24_000
    sound = _tones(count, 0.01) * jnp.exp(-jnp.arange(count) / 2000.0) + 0.05 * uniform(9, count)
    delays = jnp.asarray([101, 143, 187, 223, 281, 337, 409, 487])
    return fn, (
        sound,
        delays,
        jnp.asarray(hadamard / np.sqrt(8)),
        jnp.asarray(0.3),
        jnp.asarray(0.85),
    )


WORKLOADS: dict[str, Callable[[], Program]] = {
    "telephone-tones": telephone_tones,
    "linear-prediction": linear_prediction,
    "mel-features": mel_features,
    "spectral-denoiser": spectral_denoiser,
    "echo-canceller": echo_canceller,
    "delay-reverb": delay_reverb,
}
