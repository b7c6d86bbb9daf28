"""The page of documentation on the metrics of training, made from their table.

The site of the documents asks for it; ``python -m graphopt.learn.training.page`` prints it.
"""

from __future__ import annotations

from typing import Final

from graphopt.learn.training.metrics import METRICS

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


def page() -> str:
    """The page as Markdown."""
    rows = [f"| `{name}` | {meaning} |\n" for name, meaning in METRICS.items()]
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    print(page(), end="")
