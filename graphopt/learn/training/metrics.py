"""Named metrics: the table of all of them, and where they are written (CSV and TensorBoard event files).

The site of the documents shows `page`; ``python -m graphopt.learn.training.metrics`` prints it.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tensorboardX import SummaryWriter  # type: ignore[import-untyped, unused-ignore]

from graphopt.closing import Closing

METRICS: Final[dict[str, str]] = {
    "train/step": "optimizer steps so far, all stages",
    "train/stage": "index of the stage",
    "train/seconds": "seconds of training so far, interruptions not counted",
    "train/learning_rate": "learning rate of the step",
    "train/largest_graph": "nodes of the largest graph that the curriculum allows",
    "train/epochs": "passes over the step's rollouts before the divergence guard or the limit ended them",
    "rollout/reward": "mean reward of the sampled decisions: log(default time / time), cut, failures fixed",
    "rollout/best": "mean over graphs of the best reward in the step",
    "rollout/greedy": "mean over graphs of the reward of the likeliest decisions",
    "rollout/failed": "share of decision vectors that could not be scored",
    "rollout/changes": "mean share of free choices that differ from XLA's",
    "rollout/measured": "decision vectors or kernels compiled and timed in the step",
    "rollout/seconds": "seconds spent on sampling and scoring in the step",
    "rollout/value_error": "mean absolute difference of the value head and the mean reward",
    "elite/log_speedup": "mean over training graphs of the best log speed-up known",
    "elite/improved": "graphs of the step on which the policy beat the best known decisions",
    "loss/total": "the objective",
    "loss/policy": "PPO's clipped surrogate, mean over vectors of the mean over choices",
    "loss/imitation": "weighted negative log-likelihood of the best known decisions, per choice",
    "loss/value": "Huber loss of the value head",
    "loss/gain": "Huber plus pinball loss of the gain head",
    "ppo/entropy": "mean entropy of the drawn choices, nats",
    "ppo/kl": "mean divergence of the policy from the one that sampled, per choice, first order",
    "ppo/clipped": "share of choices whose ratio left the clipping range",
    "ppo/grad_norm": "norm of the gradient before clipping",
    "validation/geomean": "geometric mean speed-up of the likeliest decisions on validation graphs",
    "validation/gated": "the same where the heuristic stands unless the gain head is sure",
    "validation/kept": "share of validation graphs on which the heuristic stands",
    "validation/guarded": "the same of what users get: heuristic, default or another candidate, by the gate",
    "validation/guarded_worst": "smallest speed-up among them",
    "validation/heuristic": "geometric mean speed-up of the heuristic on the same graphs",
    "validation/worth": "mean log speed-up behind the gate, slow-downs weighing thrice: picks the policy",
    "validation/p5": "5th percentile of the speed-up of the likeliest decisions",
    "validation/p25": "25th percentile",
    "validation/p50": "median",
    "validation/p75": "75th percentile",
    "validation/p95": "95th percentile",
    "validation/worst_gated": "smallest speed-up among the graphs where it does not, 1 if it does on all",
    "validation/gain_error": "mean absolute error of the predicted log speed-up",
}
"""Every metric that training writes, in the order of the CSV's columns. `page` shows them."""

_HEAD: Final = """# Metrics of training

`train-policy` writes one row per step to `metrics.csv` and the same values to TensorBoard event files
under `events/` (`tensorboard --logdir runs`). Columns that have no value at a step are empty:
`validation/*` appears every `validate_every` steps and at the end of each stage.

Speed-up always means XLA's default time / new time, by the scorer of the stage in progress
(`validation/*`: by `validation_scorer`, if it is set). Results of different scorers do not compare. Log
means natural logarithm.

| metric | meaning |
|---|---|
"""

_TAIL: Final = """
## What to look at

* `rollout/greedy` is what the policy would get on the step's graphs; `rollout/reward` lies below it,
  because samples explore. If `rollout/best` stays at `rollout/greedy`, exploration finds nothing new.
* `validation/gated` is what the network's own decisions give: the heuristic's where the gain head is
  not sure. The margin behind it is chosen on the same graphs, so it is slightly optimistic; judge a
  shipped policy on the held-out split.
* `validation/p5` and `validation/worst_gated` show the risk, `validation/p95` the prize.
* `ppo/kl` above `ppo.max_kl` ends a step's passes; `train/epochs` then is below `ppo.epochs`. If that
  happens at most steps, lower the learning rate.
* `ppo/entropy` near 0 with `rollout/best` above `rollout/greedy`: the policy has stopped exploring too
  early; raise `ppo.entropy`.
"""

CSV_NAME: Final = "metrics.csv"
EVENTS: Final = "events"


class Recorder(Closing):
    """Writes one row per step to ``metrics.csv`` and to event files under ``events/``.

    Resuming drops rows after the step that training resumes from; event files are told to do the same.
    """

    def __init__(self, out: Path, resume_step: int) -> None:
        """Opens the files; rows of steps after `resume_step` are removed."""
        self.path = out / CSV_NAME
        kept = [row for row in read_rows(out) if row["train/step"] <= resume_step]
        self._write_all(kept)
        self._file = self.path.open("a", newline="")
        self._rows = csv.writer(self._file)
        self._events = SummaryWriter(str(out / EVENTS), purge_step=resume_step + 1)

    def write(self, metrics: Mapping[str, float]) -> None:
        """Writes one row; names must be in `METRICS`, those missing stay empty."""
        unknown = set(metrics) - set(METRICS)
        if unknown:
            raise KeyError(f"metrics without a description: {sorted(unknown)}")
        self._rows.writerow([_text(metrics.get(name)) for name in METRICS])
        self._file.flush()
        step = int(metrics["train/step"])
        for name, value in metrics.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is buffered and closes the files."""
        self._file.close()
        self._events.close()

    def _write_all(self, rows: list[dict[str, float]]) -> None:
        """Replaces the CSV at once."""
        new = self.path.with_suffix(".new")
        with new.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(METRICS)
            writer.writerows([_text(row.get(name)) for name in METRICS] for row in rows)
        os.replace(new, self.path)


def read_rows(out: Path) -> list[dict[str, float]]:
    """Rows of a run's CSV, metrics without a value left out; empty if there is no file."""
    path = out / CSV_NAME
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return [{name: float(v) for name, v in row.items() if name and v} for row in rows]


def _text(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def page() -> str:
    """The page as Markdown."""
    rows = [f"| `{name}` | {meaning} |\n" for name, meaning in METRICS.items()]
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    print(page(), end="")
