"""``graphopt advantages`` on the terminal: reads, trains, judges, shows, writes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import jax
import yaml  # type: ignore[import-untyped, unused-ignore]
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from graphopt import jax_private
from graphopt.learn.advantages.config import AdvantagesConfig
from graphopt.learn.advantages.data import Counted, Labelled, read_states
from graphopt.learn.advantages.run import NETWORK, POLICY, Run, Tell, write_report
from graphopt.learn.advantages.scores import Scores
from graphopt.progress import live
from graphopt.tasks.parts import provenance

INTERRUPTED: Final = 130

TABLE: Final = "report.md"

SHOWN: Final = (
    "sign", "sign_retest", "rank", "rank_retest", "inside_80", "inside_95", "error", "gain_1", "chosen_1",
    "possible",
)  # fmt: skip
"""Scores in the table; report.json has all."""


def advantages_session(
    config: AdvantagesConfig, duels: Path, out: Path, console: Console | None = None
) -> int:
    """Learns with progress on the terminal; exit status 0, or 130 if interrupted.

    What is trained is kept: the same command goes on.

    Raises:
        ConfigError: there are no duels, too few families, or the folder holds another run.
        StoreError: a part of the duels is damaged.
    """
    console = console or Console(width=None if Console().is_terminal else 140)
    if not jax_private.backends_initialized():
        jax.config.update("jax_platforms", "cpu")
    try:
        with live(console, counted=False) as progress:
            bar = progress.add_task("reading duels")
            states, counted = read_states(
                duels, lambda done, total: progress.update(bar, completed=done, total=total)
            )
            run = Run(config, states, out, _teller(progress, console))
            (out / "config.yaml").write_text(yaml.safe_dump(plain(asdict(config)), sort_keys=False))
            scores = run.judge()
            policy = run.policy(scores[NETWORK].values)
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on", highlight=False)
        return INTERRUPTED
    console.print(table_of(scores), described(states, counted))
    path = write_report(out, report_of(config, states, counted, scores))
    (out / TABLE).write_text(markdown_of(scores))
    console.print(f"report: {path}   policy: {policy}", highlight=False)
    return 0


def plain(value: Any) -> Any:
    """Nested settings with lists for tuples, as YAML has them."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _teller(progress: Progress, console: Console) -> Tell:
    """Shows which network is in training, on the bar, or as a line each where there is no terminal."""
    bars: dict[str, Any] = {}

    def tell(name: str, epoch: int, epochs: int, loss: float) -> None:
        """One epoch more."""
        if name not in bars:
            for old in bars.values():
                progress.remove_task(old)
            bars.clear()
            bars[name] = progress.add_task(name, total=epochs)
        text = name if math.isnan(loss) else f"{name}: loss {loss:.3f}"
        progress.update(bars[name], description=text, completed=epoch)
        if not console.is_terminal and epoch == epochs:
            console.print(f"{text} after {epochs} epochs", highlight=False)

    return tell


def described(states: list[Labelled], counted: Counted) -> str:
    """What was learned from, in a line."""
    families = Counter(one.family for one in states)
    return (
        f"{counted.duels} duels of {len(states)} states of {len(families)} families "
        f"({counted.failed} failed, {counted.unfit} do not fit)"
    )


def table_of(scores: Mapping[str, Scores]) -> Table:
    """Scores on families that were not learned from."""
    table = Table(title="families that were not learned from")
    table.add_column("")
    for name in SHOWN:
        table.add_column(name, justify="right")
    for name, found in scores.items():
        table.add_row(name, *(f"{found.values[column]:.3f}" for column in SHOWN))
    return table


_SECOND: Final = "a second look"

_COLUMNS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("sign right", "sign", "sign_retest", "percent"),
    ("rank correlation", "rank", "rank_retest", "number"),
    ("inside 80 %", "inside_80", "", "percent"),
    ("inside 95 %", "inside_95", "", "percent"),
    ("error", "error", "", "number"),
    ("gain by means", "gain_0", "", "gain"),
    ("gain by lower bounds", "gain_1", "", "gain"),
    ("chosen", "chosen_1", "", "percent"),
    ("best possible", "", "possible", "gain"),
)
"""Columns of the table for documents: heading, score, the score of a second look, how it is shown."""


def markdown_of(scores: Mapping[str, Scores]) -> str:
    """The scores as a table in Markdown, with what a second look at the same duels gives."""
    headings = ["judge", *(heading for heading, *_ in _COLUMNS)]
    lines = [f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
    for name, found in scores.items():
        cells = [_cell(found.values.get(score, math.nan), show) for _, score, _, show in _COLUMNS]
        lines.append(f"| {' | '.join([name, *cells])} |")
    values = next(iter(scores.values())).values
    cells = [_cell(values.get(second, math.nan), show) for _, _, second, show in _COLUMNS]
    lines.append(f"| {' | '.join([_SECOND, *cells])} |")
    return "\n".join(lines) + "\n"


def _cell(value: float, show: str) -> str:
    """A figure as text: parts and gains in percent."""
    if math.isnan(value):
        return "-"
    if show == "percent":
        return f"{100 * value:.0f} %"
    return f"{100 * math.expm1(value):.1f} %" if show == "gain" else f"{value:.2f}"


def report_of(
    config: AdvantagesConfig,
    states: list[Labelled],
    counted: Counted,
    scores: Mapping[str, Scores],
) -> dict[str, Any]:
    """What ``report.json`` holds."""
    return {
        "made_by": provenance(),
        "policy": POLICY,
        "config": plain(asdict(config)),
        "data": {
            **asdict(counted),
            "states": len(states),
            "families": dict(sorted(Counter(one.family for one in states).items())),
            "kinds": dict(Counter(kind for one in states for kind in one.kinds).most_common()),
        },
        "scores": {
            name: {"states": s.states, "duels": s.duels, **s.values} for name, s in scores.items()
        },
    }
