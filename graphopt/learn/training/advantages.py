"""From rewards to advantages. Axis letter: B decision vectors of one graph, the first the likeliest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.learn.config import PPOConfig

FloatArray = NDArray[np.float64]

BASELINES: Final[dict[str, Callable[[FloatArray, float], float]]] = {
    "greedy": lambda rewards, value: float(rewards[0]),
    "value": lambda rewards, value: value,
    "mean": lambda rewards, value: float(rewards.mean()),
}
"""Name -> (rewards [B], the value head's prediction) -> what rewards are compared with."""


def advantages(rewards: FloatArray, value: float, config: PPOConfig) -> FloatArray:
    """Advantages float64 [B] of one graph: reward minus baseline, in units of the rewards' spread.

    The spread is the standard deviation around the baseline, but at least `config.min_spread`, so that
    graphs on which nothing matters do not turn noise into gradients. The likeliest vector has advantage
    0: it drew nothing.
    """
    difference = rewards - BASELINES[config.baseline](rewards, value)
    spread = float(np.sqrt(np.mean(np.square(difference[1:])))) if len(rewards) > 1 else 0.0
    scaled = difference / max(spread, config.min_spread)
    scaled[0] = 0.0
    return np.clip(scaled, -config.advantage_clip, config.advantage_clip)


def rewards(seconds: FloatArray, default_s: float, clip: float, failure: float) -> FloatArray:
    """log(default time / time), cut to [-clip, clip]; `failure` where seconds is NaN. float64 [B]."""
    failed = ~(seconds > 0) | ~np.isfinite(seconds)
    speedup = np.log(default_s / np.where(failed, default_s, seconds))
    return np.where(failed, failure, np.clip(speedup, -clip, clip))
