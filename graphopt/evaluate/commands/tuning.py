"""The commands that tune programs and the queue: parse and call, nothing else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from graphopt.policy.registry import DEFAULT


@dataclass(frozen=True)
class Tune:
    """Search for a faster compile of a builder pkg.module:builder, and store the winner."""

    workload: Annotated[str, tyro.conf.Positional] = ""
    """pkg.module:builder, or the name of a built-in program."""
    budget_s: float = 60.0
    """Seconds to spend."""
    seed: int = 0
    """Seed of the search."""
    store: str | None = None
    """Path or URL of the store of winners; the user's store by default."""
    json: bool = False
    """Print the result as JSON."""
    policy: str = DEFAULT
    """Policy whose proposals are among the starting points; empty for none."""
    replay: bool = False
    """Apply the stored winner and measure it again."""
    export: Path | None = None
    """Write all winners of the store to this file."""
    take: Annotated[Path | None, tyro.conf.arg(name="import")] = None
    """Take the winners of this file into the store."""
    queue: bool = False
    """Tune what programs left in the store's queue, while the machine is idle: budget-s for each of them."""
    items: int = 0
    """With --queue: end after so many; 0 for no limit."""
    limit_s: float = 0.0
    """With --queue: begin nothing more after so many seconds; 0 for no limit."""
    max_load: float = 0.5
    """With --queue: cores that other programs may use; above it, tuning stops and waits."""
    follow: bool = False
    """With --queue: wait for more when the queue is empty."""
    executor: str = "local"
    """Which machine tunes: local, ray:auto, ray:HOST:PORT or ray://HOST:PORT."""

    def run(self) -> int:
        """Exit status 1 if results differ by more than rounding and chaos explain."""
        if self.queue:
            from graphopt.evaluate.commands.queue import Plan, run_tune_queue

            plan = Plan(
                self.store, self.budget_s, self.limit_s, self.items, self.max_load, self.follow,
                self.executor,
            )  # fmt: skip
            run_tune_queue(plan, self.json)
            return 0
        from graphopt.evaluate.commands.elsewhere import tune_elsewhere
        from graphopt.evaluate.commands.tune import move_winners, run_tune

        move_winners(self.store, self.export, self.take)
        if not self.workload:
            if self.export is None and self.take is None:
                print("graphopt tune: name a program, or --queue", file=sys.stderr)
                return 2
            return 0
        if self.executor != "local" and not self.replay:
            return tune_elsewhere(
                self.executor, self.workload, self.budget_s, self.seed, self.store, self.json,
                self.policy,
            )  # fmt: skip
        result = run_tune(
            self.workload,
            self.budget_s,
            self.seed,
            self.store,
            self.json,
            self.replay,
            self.policy,
        )
        return 0 if result.verified or result.chaotic else 1


@dataclass(frozen=True)
class Queue:
    """Modules that programs left to be tuned (install(record=True)): list, show, forget, clear."""

    action: Annotated[Literal["list", "show", "forget", "clear"], tyro.conf.Positional] = "list"
    """What to do."""
    ids: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Ids of items, for show and forget."""
    store: str | None = None
    """Path or URL of the store with the queue; the user's store by default."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Exit status 1 if an item is not there."""
        from graphopt.evaluate.commands.queue import run_queue

        return run_queue(self.action, self.ids, self.store, self.json)
