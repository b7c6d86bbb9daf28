"""Plots of measured tables: drawings that read on white and on black, the same bytes for the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.results.pages import Asked
from benchmarks.results.record import Row

GREY: Final = "#808890"
"""Text and axes: as far from white as from black."""
COLOURS: Final = ("#2f80d0", "#e08a1e", "#3aa76d")
STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "graphopt",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}
TICKS: Final = (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)
MOST_DOTS: Final = 60
"""A plot with a line per row is not longer than so many; `_curve` takes more."""
NAMED: Final = 21
"""So many bars, at even distances, have their names below them in `_curve`."""


def draw(asked: Asked, path: Path) -> None:
    """Draws what a directive asks for; the words ``curve`` and ``history`` choose other plots than dots."""
    usual = "share" if asked.result.kind == "overhead" else "dots"
    name = asked.options.get("style", usual if len(asked.result.rows) <= MOST_DOTS else "curve")
    with plt.rc_context(STYLE):
        figure = STYLES[name](asked)
        figure.savefig(
            path,
            transparent=True,
            bbox_inches="tight",
            metadata={"Date": None, "Creator": None, "Description": digest(asked)},
        )
        plt.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def digest(asked: Asked) -> str:
    """Stands in a drawing for the rows and options that it shows."""
    shown = [list(asked.result.rows), asked.words, dict(asked.options)]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _series(asked: Asked) -> dict[str, tuple[str, tuple[str, str] | None]]:
    """Heading -> key and ends of the interval, of each ratio that is plotted."""
    keys = asked.options.get("show", asked.kind.ratio).split(",")
    columns = [asked.column(key) for key in keys]
    return {c.heading.strip("`"): (c.key, c.interval) for c in columns}


def _dots(asked: Asked) -> Any:
    """A row per program, a dot with its interval per ratio, the largest on top."""
    rows = sorted(asked.result.rows, key=lambda row: row[asked.kind.ratio])
    figure, axes = plt.subplots(figsize=(6.2, 0.6 + 0.19 * len(rows)))
    parts = list(dict.fromkeys(row.get(asked.kind.split) for row in rows))
    series = _series(asked)
    for number, (heading, (key, ends)) in enumerate(series.items()):
        for offset, part in enumerate(parts):
            places = [i for i, r in enumerate(rows) if key in r and r.get(asked.kind.split) == part]
            label = " ".join(filter(None, [heading, f"{asked.kind.split} {part}" if part else ""]))
            own = [rows[i] for i in places]
            _errorbars(axes, own, places, key, ends, COLOURS[number + offset], label)
    axes.set_yticks(range(len(rows)), [_label(asked, row) for row in rows], fontsize=8)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    _ratio_axis(axes.xaxis, axes)
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.grid(axis="x", color=GREY, alpha=0.2)
    if len(series) * len(parts) > 1:
        axes.legend(loc="lower right")
    return figure


def _label(asked: Asked, row: Row) -> str:
    extra = [f"{row['devices']} devices"] if "devices" in row else []
    sizes = {other.get("size") for other in asked.result.rows}
    extra += [row["size"]] if len(sizes) > 1 else []
    return ", ".join([row[asked.kind.label], *extra])


def _errorbars(
    axes: Axes,
    rows: Sequence[Row],
    places: Sequence[int],
    key: str,
    ends: tuple[str, str] | None,
    colour: str,
    label: str,
) -> None:
    values = [row[key] for row in rows]
    spread = None
    if ends is not None and all(end in row for row in rows for end in ends):
        low, high = ends
        spread = [
            [max(0.0, row[key] - row[low]) for row in rows],
            [max(0.0, row[high] - row[key]) for row in rows],
        ]
    axes.errorbar(values, places, xerr=spread, fmt="o", ms=4, color=colour, lw=1.2, label=label)


def _ratio_axis(axis: Any, axes: Axes) -> None:
    scale = axes.set_xscale if axis is axes.xaxis else axes.set_yscale
    scale("log")
    low, high = axis.get_view_interval()
    axis.set_ticks([tick for tick in TICKS if low <= tick <= high])
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def _curve(asked: Asked) -> Any:
    """All programs as bars in order of their ratio; some have names."""
    key = asked.kind.ratio
    rows = sorted(asked.result.rows, key=lambda row: row[key])
    values = [row[key] for row in rows]
    figure, axes = plt.subplots(figsize=(9.6, 2.0))
    bottom = min(0.9, 0.95 * min(values))
    colours = [COLOURS[0] if value >= 1 else COLOURS[1] for value in values]
    axes.bar(range(len(rows)), [v - 1 for v in values], bottom=1, color=colours, width=0.8)
    axes.set_ylim(bottom, 1.15 * max(values))
    axes.set_xlim(-1, len(rows))
    _ratio_axis(axes.yaxis, axes)
    axes.spines.bottom.set_visible(False)
    axes.axhline(1, color=GREY, linewidth=0.8)
    mean = geometric_mean(values)
    axes.axhline(mean, color=COLOURS[2], linewidth=1, linestyle="--")
    axes.text(0, 1.03 * mean, f"geometric mean {mean:.2f}x", color=COLOURS[2], va="bottom")
    named = range(len(rows) - 1, -1, -max(1, round(len(rows) / NAMED)))
    names = [_label(asked, rows[position]) for position in named]
    axes.set_xticks(named, names, rotation=40, ha="right", fontsize=7, rotation_mode="anchor")
    axes.set_title(
        f"{len(rows)} programs, one bar each: speed-up over XLA's default", fontsize=9, loc="left"
    )
    return figure


def _history(asked: Asked) -> Any:
    """Ratios over commits, the oldest on the left."""
    rows = asked.result.rows
    figure, axes = plt.subplots(figsize=(6.2, 2.6))
    for colour, (heading, (key, _)) in zip(COLOURS, _series(asked).items(), strict=False):
        places = [i for i, row in enumerate(rows) if key in row]
        axes.plot(places, [rows[i][key] for i in places], "o-", color=colour, ms=4, label=heading)
    axes.set_xticks(
        range(len(rows)), [row["name"] for row in rows], rotation=20, ha="right", fontsize=7
    )
    axes.set_ylabel("speed-up")
    axes.grid(axis="y", color=GREY, alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _share(asked: Asked) -> Any:
    """Shares of XLA's compile time, at first sight and remembered, in percent."""
    rows = sorted(asked.result.rows, key=lambda row: row["first"])
    figure, axes = plt.subplots(figsize=(6.2, 0.6 + 0.19 * len(rows)))
    for colour, key, label in (
        (COLOURS[0], "first", "at first sight"),
        (COLOURS[2], "again", "again"),
    ):
        axes.plot(
            [100 * row[key] for row in rows], range(len(rows)), "o", ms=4, color=colour, label=label
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_yticks(range(len(rows)), [_label(asked, row) for row in rows], fontsize=8)
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.legend(loc="lower right")
    return figure


STYLES: Final[dict[str, Callable[[Asked], Any]]] = {
    "dots": _dots,
    "curve": _curve,
    "history": _history,
    "share": _share,
}
