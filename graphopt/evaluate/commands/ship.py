"""``graphopt ship``: a trained policy into the package, with a model card made of its own records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from graphopt.errors import PolicyError
from graphopt.evaluate.evaluation.compare import compare_markdown
from graphopt.files import write_directory
from graphopt.learn.config import CONFIG_NAME
from graphopt.learn.training.train import POLICY
from graphopt.policy.network.checkpoint import Checkpoint, load
from graphopt.policy.network.files import SPEC, WEIGHTS
from graphopt.policy.registry import SHIPPED

CARD = "README.md"


def ship(run: Path, report: Path | None, destination: Path = SHIPPED) -> Path:
    """Copies the policy of a training run to where `install()` finds it, and writes its card beside it.

    Args:
        run: directory of the run.
        report: folder of ``graphopt evaluate --zero-shot`` on held-out programs; None: the card says that
            none was made.
        destination: directory of the shipped checkpoint.

    Returns:
        The card.

    Raises:
        PolicyError: the run has no usable policy, or the report cannot be read or is about another policy.
    """
    checkpoint = load(run / POLICY)
    text = card(checkpoint, _settings(run), _report(report, checkpoint))

    def fill(folder: Path) -> None:
        for name in (SPEC, WEIGHTS):
            shutil.copyfile(run / POLICY / name, folder / name)

    write_directory(destination, fill)
    path = destination.parent / CARD
    path.write_text(text)
    return path


def _settings(run: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load((run / CONFIG_NAME).read_text())
    except (OSError, yaml.YAMLError):
        found = None
    return found if isinstance(found, dict) else {}


def _report(folder: Path | None, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The report in a folder.

    Raises:
        PolicyError: it cannot be read, or is about another policy.
    """
    if folder is None:
        return None
    fix = "Run graphopt evaluate --workloads held-out --zero-shot with the policy first."
    path = folder / "report.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        key = found["settings"]["policy_key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            what=f"cannot be read: {type(error).__name__}", where=str(path), fix=fix
        ) from error
    if key != f"learned-{checkpoint.digest}":
        raise PolicyError(what=f"is about another policy, {key}", where=str(path), fix=fix)
    return found


def card(checkpoint: Checkpoint, settings: dict[str, Any], report: dict[str, Any] | None) -> str:
    """The model card as Markdown; every figure is read from the checkpoint or the report."""
    spec = checkpoint.spec
    stages = ", ".join(f"{s['name']} ({s['steps']} steps)" for s in settings.get("stages", []))
    size = sum(value.size for value in checkpoint.parameters.values())
    metrics = "\n".join(f"| `{k}` | {v:.4g} |" for k, v in sorted(spec.metrics.items()))
    return f"""# The shipped policy

Written by `graphopt ship`. `graphopt.install()` loads it; `graphopt.install("heuristic")` does without.

| | |
|---|---|
| digest | `{checkpoint.digest}` |
| parameters | {size:,} |
| optimizer steps | {spec.steps} |
| training graphs | {len(spec.trained_on)} (fingerprints in `cpu/spec.json`) |
| stages | {stages or "unknown"} |
| seed | {settings.get("seed", "unknown")} |
| machine | `{spec.machine}` |
| jaxlib | {spec.jaxlib} or newer |
| gate | {_gate(checkpoint)} |

## How it decides

{_candidates(checkpoint)}
The network predicts what each gains over the heuristic, which stands unless that is more than the gate's
margin (negative: its own proposals are trusted unless the prediction is bad), chosen on measured
times of the validation programs. Held-out programs were used for neither.

## Validation

Measured whole-module times; `python -m graphopt.learn.training.metrics` explains the columns.

| metric | value |
|---|---|
{metrics}

## Evaluation

{_evaluation(report)}
## Where it is weak

Predicted gains of single programs are rough. A graph unlike the training families is judged by
extrapolation; then the gate mostly leaves it to the heuristic. Gains were learned on one machine.
"""


def _candidates(checkpoint: Checkpoint) -> str:
    gate = checkpoint.spec.gate
    if gate is not None and gate.own:
        return "Candidates are the hand-written heuristic's decisions and the network's own changes of them."
    return (
        "Candidates are the hand-written heuristic's decisions, a few other hand-written ones, single\n"
        "changes of the heuristic's and the network's own."
    )


def _gate(checkpoint: Checkpoint) -> str:
    gate = checkpoint.spec.gate
    if gate is None:
        return "none: the network decides alone"
    what = "for its own proposals only" if gate.own else "for any candidate"
    return f"leaves the heuristic above {gate.switch:g} (log speed-up over it), {what}"


def _evaluation(report: dict[str, Any] | None) -> str:
    if report is None:
        return "Not measured.\n"
    machine = report["machine"]
    named = {**report, "settings": {**report["settings"], "policy": "this one"}}
    return (
        f"{machine['name']}, {machine['cores']} cores; jaxlib {report['versions']['jaxlib']}; "
        f"{report['date']}. Programs: {report['settings']['workloads']}.\n\n{compare_markdown(named)}\n"
    )
