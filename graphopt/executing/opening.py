"""From the text of ``--executor`` to an executor."""

from __future__ import annotations

from typing import Final

from graphopt.errors import ConfigError
from graphopt.executing.executor import Executor, LocalExecutor
from graphopt.executing.ray_executor import RayExecutor

LOCAL: Final = "local"


def open_executor(spec: str = LOCAL) -> Executor:
    """The executor that a text names.

    Args:
        spec: ``local``; ``ray:auto`` for the cluster that this machine belongs to; ``ray:HOST:PORT`` for the
            one whose head is there; ``ray://HOST:PORT`` for a cluster outside, through Ray's client.

    Raises:
        ConfigError: it names none.
        MissingExtraError: Ray is not installed.
        ExecutorError: the cluster cannot be reached.
    """
    if spec == LOCAL:
        return LocalExecutor()
    if spec.startswith("ray:") and len(spec) > len("ray:"):
        return RayExecutor(spec if spec.startswith("ray://") else spec.removeprefix("ray:"))
    raise ConfigError(
        what=f"there is no executor {spec!r}",
        where="--executor",
        fix="Use local, ray:auto, ray:HOST:PORT or ray://HOST:PORT.",
    )
