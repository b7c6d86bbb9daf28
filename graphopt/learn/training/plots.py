"""Learning curves of a run as PNG files, drawn from its CSV."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from graphopt.learn.training.metrics import read_rows

PANELS: Final[dict[str, tuple[str, ...]]] = {
    "reward (log speed-up)": ("rollout/reward", "rollout/greedy", "rollout/best"),
    "validation speed-up": ("validation/geomean", "validation/gated"),
    "validation percentiles": (
        "validation/p5",
        "validation/p25",
        "validation/p50",
        "validation/p75",
        "validation/p95",
    ),
    "best known (log speed-up)": ("elite/log_speedup",),
    "losses": ("loss/policy", "loss/imitation", "loss/value", "loss/gain"),
    "policy": ("ppo/entropy", "ppo/kl", "ppo/clipped", "rollout/changes"),
}
"""Title of each panel and the metrics drawn in it."""


def plot(out: Path) -> Path | None:
    """Draws ``curves.png`` of a run; None if it has no step yet."""
    rows = read_rows(out)
    if not rows:
        return None
    figure = Figure(figsize=(14, 8), layout="constrained")
    FigureCanvasAgg(figure)
    starts = _stage_starts(rows)
    for axes, (title, names) in zip(figure.subplots(2, 3).flat, PANELS.items(), strict=True):
        for name in names:
            points = [(row["train/step"], row[name]) for row in rows if name in row]
            if points:
                steps, values = zip(*points, strict=True)
                axes.plot(steps, values, label=name.split("/")[1], linewidth=1)
        for start in starts:
            axes.axvline(start, color="grey", linewidth=0.5, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("step")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    path = out / "curves.png"
    figure.savefig(path, dpi=110)
    return path


def _stage_starts(rows: list[dict[str, float]]) -> list[float]:
    """First step of every stage but the first."""
    return [
        now["train/step"]
        for before, now in itertools.pairwise(rows)
        if now["train/stage"] != before["train/stage"]
    ]
