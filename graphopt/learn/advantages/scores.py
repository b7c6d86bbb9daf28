"""How good predictions of advantages are: signs, order, calibration, and what choosing by them gains.

Where something is chosen because it measured well, it is chosen by the first look and read by the second, so
that noise does not count as a gain.

Axis letters: A alternatives of a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from graphopt.learn.advantages.data import Labelled
from graphopt.learn.advantages.fit import Said

EFFECT: Final = 0.05
"""Part of the time from which an effect counts for the signs."""

BOUNDS: Final = (0.0, 0.5, 1.0, 1.645)
"""Standard deviations below the mean at which lower bounds are tried."""

LEVELS: Final[dict[str, float]] = {"50": 0.6745, "80": 1.2816, "95": 1.96}
"""Per cent of labels that should lie within so many standard deviations."""

LEAST_ORDERED: Final = 5
"""Alternatives from which the order within a state is looked at."""


@dataclass(frozen=True)
class Scores:
    """What came of judging states that were not learned from.

    Attributes:
        values: by the names of `NAMES`.
        states: that were judged.
        duels: that were judged.
    """

    values: Mapping[str, float]
    states: int
    duels: int


NAMES: Final[dict[str, str]] = {
    "sign": "share of effects above 5 % whose sign is right",
    "sign_retest": "the same of a second look, given the first",
    "rank": "mean rank correlation within states",
    "rank_retest": "the same of a second look, given the first",
    "inside_50": "share of duels inside the 50 % interval",
    "inside_80": "share inside the 80 % interval",
    "inside_95": "share inside the 95 % interval",
    "error": "mean absolute error of the log ratio",
    **{
        f"gain_{bound:g}": f"mean log gain of the choice {bound:g} deviations below the mean"
        for bound in BOUNDS
    },
    **{f"chosen_{bound:g}": "share of states where something is chosen so" for bound in BOUNDS},
    "possible": "mean log gain of the best alternative: clear in the first look, read by the second",
    "regret": "possible less what the choice at one deviation gains",
}
"""Names of scores -> what each is; gains are means over states."""


def score(states: Sequence[Labelled], said: Sequence[Said]) -> Scores:
    """Scores of predictions.

    Args:
        states: that were not learned from.
        said: mean and standard deviation of each one's alternatives.
    """
    target = np.concatenate([s.target for s in states])
    noise = np.concatenate([s.noise for s in states])
    looks = np.concatenate([s.looks for s in states])
    mean = np.concatenate([m for m, _ in said]).astype(np.float64)
    deviation = np.concatenate([d for _, d in said]).astype(np.float64)
    large = np.abs(target) > np.log1p(EFFECT)
    first = np.abs(looks[:, 0]) > np.log1p(EFFECT)
    away = np.abs(target - mean) / np.sqrt(deviation**2 + noise**2)
    values = {
        "sign": _mean(np.sign(mean[large]) == np.sign(target[large])),
        "sign_retest": _mean(np.sign(looks[first, 0]) == np.sign(looks[first, 1])),
        "rank": _mean([correlation(m, s.target) for s, (m, _) in zip(states, said, strict=True)]),
        "rank_retest": _mean([correlation(s.looks[:, 0], s.looks[:, 1]) for s in states]),
        **{f"inside_{name}": _mean(away <= width) for name, width in LEVELS.items()},
        "error": _mean(np.abs(target - mean)),
        **_choices(states, said),
    }
    values["regret"] = values["possible"] - values["gain_1"]
    return Scores(values, len(states), len(target))


def _choices(states: Sequence[Labelled], said: Sequence[Said]) -> dict[str, float]:
    """What choosing gains in states with several alternatives."""
    pairs = [(s, p) for s, p in zip(states, said, strict=True) if len(s) > 1]
    out = {}
    for bound in BOUNDS:
        gains = [gain_of(s, p, bound) for s, p in pairs]
        out[f"gain_{bound:g}"] = _mean([gain for gain, _ in gains])
        out[f"chosen_{bound:g}"] = _mean([chosen for _, chosen in gains])
    out["possible"] = _mean([possible(s) for s, _ in pairs])
    return out


def gain_of(state: Labelled, said: Said, bound: float) -> tuple[float, bool]:
    """Log gain of the alternative with the highest lower bound above 0, and whether there is one."""
    low = said[0] - bound * said[1]
    best = int(np.argmax(low))
    return (float(state.target[best]), True) if low[best] > 0.0 else (0.0, False)


def possible(state: Labelled) -> float:
    """Log gain of the highest lower end in the first look, read by the second; 0 if none is above 0."""
    best = int(np.argmax(state.looks[:, 2]))
    return float(state.looks[best, 1]) if state.looks[best, 2] > 0.0 else 0.0


def correlation(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Rank correlation; NaN for few values or where all are equal."""
    if len(a) < LEAST_ORDERED:
        return float("nan")
    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0.0 else float("nan")


def _mean(values: object) -> float:
    """Mean of what is not NaN; NaN for nothing."""
    found = np.asarray(values, np.float64)
    found = found[~np.isnan(found)]
    return float(found.mean()) if len(found) else float("nan")
