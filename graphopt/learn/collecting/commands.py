"""The commands that measure for training: parse and call, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fill:
    """Measure decisions of many programs into the store, good and bad ones: what training learns from."""

    workloads: tuple[str, ...] = ("train", "validation")
    """Program sets: train, validation, demo, fuzz, generated or pkg.module:WORKLOADS; not held-out."""
    graphs: tuple[str, ...] = ()
    """Names of programs; all if none is given."""
    budget_s: float = 1500.0
    """Seconds in all; the same command again goes on where it was."""
    store: str | None = None
    """Path or URL of the store of the measurements; the user's store by default."""
    seed: int = 0
    """Seed of random decisions."""
    max_nodes: int = 2000
    """Larger graphs are left out."""

    def run(self) -> int:
        """Exit status 0, or 130 if interrupted."""
        from graphopt.learn.collecting.command import FillPlan, fill_session

        return fill_session(
            FillPlan(
                self.workloads, self.graphs, self.budget_s, self.store, self.seed, self.max_nodes
            )
        )


@dataclass(frozen=True)
class Collect:
    """Measure all alternatives of the tasks of many programs in duels with the heuristic."""

    workloads: tuple[str, ...] = ("train", "validation")
    """Program sets: train, validation, demo, fuzz, generated or pkg.module:WORKLOADS; not held-out."""
    graphs: tuple[str, ...] = ()
    """Names of programs; all if none is given."""
    budget_s: float = 1500.0
    """Seconds in all; the same command again goes on where it was."""
    out: Path = Path("data/duels")
    """Folder of the parts; each run adds one file."""
    max_nodes: int = 4000
    """Larger graphs are left out."""
    least_share: float = 0.02
    """Part of its program's estimated time that a task must take."""
    executor: str = "local"
    """Where duels are held: local, ray:auto, ray:HOST:PORT or ray://HOST:PORT."""
    states_of: Path | None = None
    """Measure at the states that a policy of graphopt advantages reaches, instead of the heuristic's."""
    most: int = 0
    """Duels of a task, those about most time first; 0 for all. Fewer mean more programs in the same time."""

    def run(self) -> int:
        """Exit status 0, 1 if anything was given up, 130 if interrupted."""
        from graphopt.learn.collecting.collect import CollectPlan
        from graphopt.learn.collecting.collect_session import collect_session
        from graphopt.learn.collecting.command import FillPlan

        source = FillPlan(self.workloads, self.graphs, self.budget_s, None, 0, self.max_nodes)
        plan = CollectPlan(
            source, self.out, self.least_share, self.executor, self.states_of, self.most
        )
        return collect_session(plan)
