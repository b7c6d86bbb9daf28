"""The command that starts and looks at clusters: parses and calls, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich.console import Console

from graphopt.progress import waiting


@dataclass(frozen=True)
class Fleet:
    """A Ray cluster that measures: up (on this machine, for trying out), status, down, join ADDRESS."""

    action: Annotated[Literal["up", "status", "down", "join"], tyro.conf.Positional] = "status"
    """What to do."""
    address: Annotated[str, tyro.conf.Positional] = ""
    """For status and join: HOST:PORT of the cluster's head; the one that `up` started by default."""
    local: int = 2
    """For up: nodes, all on this machine. Times are only to be trusted with one."""
    cores: int = 1
    """For up: cores that each node has by Ray's count."""
    dashboard: bool = False
    """For up: Ray's dashboard too."""
    measures: bool = True
    """For join: this machine measures; with --no-measures it only lends its cores to other work."""

    def run(self) -> int:
        """Exit status 1 if there is no cluster; of ``ray start`` for join."""
        from graphopt.executing import local_cluster

        if self.action == "up":
            print(local_cluster.up(self.local, self.cores, self.dashboard))
            return 0
        if self.action == "down":
            print("ended" if (ended := local_cluster.down()) else "there is none")
            return 0 if ended else 1
        if self.action == "join":
            return local_cluster.join(self.address, self.measures)
        with waiting(Console(), "asking the cluster what is there"):
            text, running = local_cluster.status(self.address)
        print(text)
        return 0 if running else 1
