"""``python -m graphopt.learn.placement.command``: trains the shipped placement policy."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import tyro
from rich.console import Console

from graphopt.corpus.placement.large import LargeModel
from graphopt.corpus.placement.training import training_models
from graphopt.errors import exit_status
from graphopt.learn.placement.train import PlacementTraining, train
from graphopt.placement.baselines import Problem
from graphopt.placement.build import build_tasks
from graphopt.placement.cluster import known
from graphopt.placement.flat import flatten
from graphopt.placement.simulator import Simulator
from graphopt.progress import steps


@dataclasses.dataclass(frozen=True)
class TrainPlacement:
    """Train the placement policy on the simulator.

    Attributes:
        out: where the weights go.
        accelerators: kinds of devices to train on.
        training: hyper-parameters.
    """

    out: Path = Path("placement_policy.npz")
    accelerators: tuple[str, ...] = ("p100", "h100")
    training: PlacementTraining = dataclasses.field(default_factory=PlacementTraining)

    def run(self) -> int:
        """Trains; writes the file after each round of PPO, so that Ctrl-C leaves the last one."""
        problems = [
            model_problem(model, accelerator)
            for model in training_models()
            for accelerator in self.accelerators
        ]
        with steps(Console(), self.training.steps, "steps done") as show:
            policy = train(problems, self.training, show, lambda policy: policy.save(self.out))
        policy.save(self.out)
        return 0


def model_problem(model: LargeModel, accelerator: str) -> Problem:
    """A large model on its number of accelerators of one kind."""
    closed, weights = model.trace()
    traced = build_tasks(flatten(closed, model.name), weights)
    return Problem(Simulator(traced.tasks, known(accelerator, model.devices)))


if __name__ == "__main__":
    sys.exit(exit_status("placement training", lambda: tyro.cli(TrainPlacement).run()))
