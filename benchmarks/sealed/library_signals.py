"""Audio, wavelets, image augmentation, splines, temporal logic and soft sorting.

Libraries: librosax, jaxwavelets, augmax, bsplx, stljax and softjax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def librosax_features() -> Program:
    """Mel-frequency cepstra, chroma and contrast of two seconds of a batch of eight tones."""
    import librosax.feature as feature

    rate = 22050

    def features(waves: jax.Array) -> dict[str, jax.Array]:
        mel = feature.melspectrogram(y=waves, sr=rate, n_fft=1024, hop_length=512, n_mels=64)
        level = 10.0 * jnp.log10(jnp.maximum(mel, 1e-4))
        cepstra = feature.mfcc(S=level, n_mfcc=20)
        chroma = feature.chroma_stft(y=waves, sr=rate, n_fft=1024, hop_length=512, tuning=0.0)
        centroid = jax.vmap(
            lambda wave: feature.spectral_centroid(y=wave, sr=rate, n_fft=1024, hop_length=512)
        )(waves)
        loudness = feature.rms(y=waves, frame_length=1024, hop_length=512)
        return {
            "cepstra": (cepstra - cepstra.mean(-1, keepdims=True)) / cepstra.std(-1, keepdims=True),
            "chroma": chroma,
            "centroid": centroid / rate,
            "loudness": loudness,
        }

    time = jnp.arange(2 * rate) / rate
    pitch = 110.0 * jnp.arange(2.0, 10.0)[:, None]
    waves = sum(jnp.sin(2 * jnp.pi * k * pitch * time) / k for k in (1, 2, 3, 4))
    return features, (waves * jnp.exp(-time) + 0.05 * normal(1, 8, time.size),)


def wavelet_denoising() -> Program:
    """Denoising of an image by soft thresholds, one per subband, and the error's gradient."""
    import jaxwavelets as wt

    def denoise(image: jax.Array, thresholds: jax.Array) -> jax.Array:
        coefficients = wt.wavedecn(image, "db4", level=3)
        details = tuple(
            {name: wt.soft_threshold(band, thresholds[level]) for name, band in bands.items()}
            for level, bands in enumerate(coefficients.details)
        )
        shrunk = wt.WaveletCoeffs(
            coefficients.approx, details, coefficients.shapes, coefficients.axes
        )
        return wt.waverecn(shrunk, "db4")

    def error(thresholds: jax.Array, image: jax.Array, clean: jax.Array) -> jax.Array:
        return jnp.mean((denoise(image, thresholds)[:160, :160] - clean) ** 2)

    grid = np.linspace(-1, 1, 160)
    clean = jnp.asarray(np.exp(-4 * np.add.outer(grid**2, grid**2)) > 0.3, jnp.float32)
    noisy = clean + 0.2 * normal(1, 160, 160)
    return jax.value_and_grad(error), (0.1 + 0.2 * uniform(2, 3), noisy, clean)


def augmax_training_batch() -> Program:
    """Random geometric and colour changes of a batch of 32 images."""
    import augmax

    transform = augmax.Chain(
        augmax.RandomCrop(64, 64),
        augmax.HorizontalFlip(),
        augmax.Rotate(30),
        augmax.RandomBrightness(),
        augmax.RandomContrast(),
        augmax.Normalize(),
    )

    def augment(key: jax.Array, images: jax.Array) -> jax.Array:
        return jax.vmap(transform)(jax.random.split(key, images.shape[0]), images)

    return augment, (jax.random.PRNGKey(0), uniform(1, 32, 80, 80, 3))


def penalized_spline() -> Program:
    """A penalized B-spline fit of a noisy curve and the criterion that chooses its smoothness."""
    from bsplx import design_matrix, repeat_knots

    knots = repeat_knots(jnp.linspace(0.0, 1.0, 16), 3)

    def fit(x: jax.Array, y: jax.Array, log_smoothness: jax.Array) -> tuple[jax.Array, jax.Array]:
        basis = design_matrix(x, knots, 3)
        count = basis.shape[1]
        penalty = jnp.diff(jnp.eye(count, dtype=x.dtype), n=2, axis=0)
        gram = basis.T @ basis
        system = gram + jnp.exp(log_smoothness) * penalty.T @ penalty
        factor = jax.scipy.linalg.cho_factor(system + 1e-4 * jnp.eye(count, dtype=x.dtype))
        coefficients = jax.scipy.linalg.cho_solve(factor, basis.T @ y)
        freedom = jnp.trace(jax.scipy.linalg.cho_solve(factor, gram))
        residual = jnp.mean((y - basis @ coefficients) ** 2)
        return basis @ coefficients, residual / (1.0 - freedom / x.size) ** 2

    x = jnp.sort(uniform(1, 200))
    y = jnp.sin(9.0 * x) + 0.2 * normal(2, 200)
    return fit, (x, y, jnp.asarray(0.5, jnp.float32))


def stl_trajectory() -> Program:
    """A gradient step on the controls of a robot under a signal temporal logic specification."""
    from stljax.formula import Always, Eventually, Predicate

    def distance(center: tuple[float, float]) -> Callable[[jax.Array], jax.Array]:
        return lambda states: jnp.linalg.norm(states[..., :2] - jnp.array(center), axis=-1)

    goal = Predicate("goal", distance((2.0, 2.0))) < 0.4
    via = Predicate("via", distance((0.5, 1.5))) < 0.4
    obstacle = Predicate("obstacle", distance((1.0, 1.0))) > 0.5
    formula = Eventually(via, interval=[0, 25]) & Eventually(Always(goal, interval=[0, 5]))
    formula = formula & Always(obstacle)

    def loss(controls: jax.Array, start: jax.Array) -> jax.Array:
        def step(state: jax.Array, control: jax.Array) -> tuple[jax.Array, jax.Array]:
            velocity = state[2:] + 0.1 * control
            state = jnp.concatenate([state[:2] + 0.1 * velocity, velocity])
            return state, state

        states = jax.lax.scan(step, start, controls)[1]
        robustness = formula.robustness(states, approx_method="logsumexp", temperature=5.0)
        return jax.nn.relu(0.2 - robustness) + 0.01 * jnp.mean(controls**2)

    def step(controls: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(controls, start)
        return controls - 0.05 * gradient, value

    return step, (0.5 + 0.3 * normal(1, 50, 2), 0.05 * normal(2, 4))


def soft_spearman() -> Program:
    """The gradient of a ranking loss of a linear scorer: one minus a soft rank correlation."""
    import softjax as sj

    def loss(weights: jax.Array, features: jax.Array, ranks: jax.Array) -> jax.Array:
        soft = sj.rank(jnp.tanh(features @ weights), axis=-1, softness=0.1, method="softsort")
        soft = soft - soft.mean(-1, keepdims=True)
        target = ranks - ranks.mean(-1, keepdims=True)
        scale = jnp.sqrt((soft**2).sum(-1) * (target**2).sum(-1))
        return 1.0 - jnp.mean((soft * target).sum(-1) / scale)

    def gradient(weights: jax.Array, features: jax.Array, ranks: jax.Array) -> tuple[Any, Any]:
        return jax.value_and_grad(loss)(weights, features, ranks)

    features = normal(1, 8, 48, 10)
    ranks = jnp.argsort(jnp.argsort(-features @ normal(2, 10), axis=-1), axis=-1)
    return gradient, (0.3 * normal(3, 10), features, ranks.astype(jnp.float32))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "librosax-features": librosax_features,
    "wavelet-denoising": wavelet_denoising,
    "augmax-training-batch": augmax_training_batch,
    "penalized-spline": penalized_spline,
    "stl-trajectory": stl_trajectory,
    "soft-spearman": soft_spearman,
}
