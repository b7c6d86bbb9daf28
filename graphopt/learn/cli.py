"""The ``train-policy`` command: parses and calls, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from graphopt.errors import ConfigError, exit_status
from graphopt.extras import require
from graphopt.learn.config import CONFIG_NAME, TOY, TrainConfig, load_config


@dataclass(frozen=True)
class Arguments:
    """Train a policy. Ctrl-C saves; --resume continues with the same result as without a break."""

    config: Path | None = None
    """YAML file with settings; flags override it."""
    out: Path = Path("runs/policy")
    """Directory of the run: policy/, state/, metrics.csv, events/, curves.png."""
    resume: bool = False
    """Continue the run in --out, with its settings if none are given."""
    toy: bool = False
    """Train a toy policy in under two minutes: small programs, an analytic cost model."""
    executor: str = "local"
    """Where is measured what training asks for: local, ray:auto, ray:HOST:PORT or ray://HOST:PORT."""
    settings: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    """All settings."""

    def run(self) -> int:
        """Trains; exit status 0, or 130 if interrupted."""
        from graphopt.learn.training.session import train_session

        return train_session(self.settings, self.out, self.resume, self.executor)


def parse(arguments: Sequence[str]) -> Arguments:
    """Arguments with the settings of --config, --toy or the run to resume as defaults of the flags.

    Raises:
        ConfigError: the YAML file cannot be used.
    """
    first, _ = tyro.cli(
        _Source, args=[a for a in arguments if a not in ("-h", "--help")], return_unknown_args=True
    )
    if first.config is not None and first.toy:
        raise ConfigError(
            what="both --config and --toy are given", where="arguments", fix="Give one of them."
        )
    settings = _settings(first)
    default = Arguments(config=first.config, toy=first.toy, settings=settings)
    return tyro.cli(Arguments, prog="train-policy", args=list(arguments), default=default)


@dataclass(frozen=True)
class _Source:
    """The flags that say where the other flags' defaults come from."""

    config: Path | None = None
    toy: bool = False
    resume: bool = False
    out: Path = Arguments.out


def _settings(source: _Source) -> TrainConfig:
    """The toy's, the file's, those of the run to be resumed, or the defaults."""
    if source.toy:
        return TOY
    if source.config is not None:
        return load_config(source.config)
    own = source.out / CONFIG_NAME
    return load_config(own) if source.resume and own.exists() else TrainConfig()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""

    def run() -> int:
        """Parses and trains."""
        require("training a policy", "train")
        return parse(sys.argv[1:] if arguments is None else arguments).run()

    return exit_status("train-policy", run)


if __name__ == "__main__":
    sys.exit(main())
