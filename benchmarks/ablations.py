"""The policy network without one of its parts, everything else equal: what is each part worth?

    python -m benchmarks.ablations --store STORE [--config configs/ablation.yaml] [--out runs/ablations]

STORE holds what ``graphopt fill`` has measured on this machine. Every variant is one ``train-policy`` run
with the same seed; a finished one is not run again. The table shows each best validation, on families it was
not trained on, by measured whole modules.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.progress import counted, ended
from graphopt.learn.training.train import POLICY

VARIANTS: dict[str, tuple[str, ...]] = {
    "whole network": (),
    "without attention": ("--model.no-attention",),
    "without superposition": ("--model.no-superposition",),
    "independent heads": ("--model.no-joint",),
    "without imitation": ("--imitation.no-enabled",),
}
"""Name -> flags of ``train-policy``."""

COLUMNS = {
    "network alone": "validation/geomean",
    "worst": "validation/p5",
    "behind the gate": "validation/guarded",
    "heuristic": "validation/heuristic",
    "gain error": "validation/gain_error",
}
"""Column -> metric of the checkpoint; see python -m graphopt.learn.training.metrics."""


def train(name: str, flags: tuple[str, ...], options: argparse.Namespace) -> dict[str, float]:
    """The validation metrics of one variant."""
    out = options.out / name.replace(" ", "-")
    spec = out / POLICY / "spec.json"
    if not (out / "done").exists():
        command = [sys.executable, "-m", "graphopt", "train", "--config", str(options.config)]
        command += ["--store", str(options.store), "--out", str(out), *flags]
        if (out / "state").exists():
            command.append("--resume")
        subprocess.run(command, check=True, stdout=sys.stderr)
        (out / "done").touch()
    return dict(json.loads(spec.read_text())["metrics"])


def main() -> None:
    """Trains all variants and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablations", description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path("configs/ablation.yaml"))
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    options = parser.parse_args()
    print(f"| variant | {' | '.join(COLUMNS)} |")
    print("| --- " * (1 + len(COLUMNS)) + "|")
    with counted(VARIANTS.items(), "variants trained") as rest:
        for name, flags in rest:
            metrics = train(name, flags, options)
            values = [f"{metrics[metric]:.3f}" for metric in COLUMNS.values()]
            print(f"| {name} | {' | '.join(values)} |", flush=True)


if __name__ == "__main__":
    sys.exit(ended(main))
