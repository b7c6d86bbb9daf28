"""The ``graphopt advantages`` command: parses and calls, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from graphopt.extras import require
from graphopt.learn.advantages.config import AdvantagesConfig, load_settings


@dataclass(frozen=True)
class Arguments:
    """Learn what alternatives gain from duels, judge it on unseen families, write a policy."""

    duels: Path = Path("data/duels")
    """Folder of the parts of graphopt collect."""
    out: Path = Path("runs/advantages")
    """Folder of the run: policy/, report.json, networks/. The same command goes on with what is there."""
    config: Path | None = None
    """YAML file with settings, such as configs/advantages.yaml; flags override it."""
    settings: Annotated[AdvantagesConfig, tyro.conf.arg(name="")] = field(
        default_factory=AdvantagesConfig
    )
    """All settings."""

    def run(self) -> int:
        """Exit status 0, or 130 if interrupted."""
        from graphopt.learn.advantages.session import advantages_session

        return advantages_session(self.settings, self.duels, self.out)


@dataclass(frozen=True)
class _Source:
    """The flag that says where the other flags' defaults come from."""

    config: Path | None = None


def parse(arguments: Sequence[str]) -> Arguments:
    """Arguments with the settings of --config as defaults of the flags.

    Raises:
        ConfigError: the YAML file cannot be used.
    """
    first, _ = tyro.cli(
        _Source, args=[a for a in arguments if a not in ("-h", "--help")], return_unknown_args=True
    )
    settings = AdvantagesConfig() if first.config is None else load_settings(first.config)
    default = Arguments(config=first.config, settings=settings)
    return tyro.cli(Arguments, prog="graphopt advantages", args=list(arguments), default=default)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    require("learning advantages", "train")
    return parse(arguments).run()
