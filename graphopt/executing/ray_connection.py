"""Reaching a Ray cluster, and telling its errors from ours."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any, Final

from graphopt.executing.executor import ExecutorError
from graphopt.executing.places import RESOURCE

REACH_S: Final = 10.0
"""Longest wait for the head of a cluster to take a connection."""

MOST_TRIES: Final = 3
"""Connections that a client tries."""

_HEAD: Final = "node:__internal_head__"
"""Ray's name for the resource that the head of a cluster has one of."""

_PACKAGES: Final = frozenset({"ray", "grpc"})
"""Where errors of Ray come from that are no errors of the system."""


def connect(address: str) -> Any:
    """The module ``ray``, connected; the connection that there is already, if any.

    Raises:
        ExecutorError: there is no cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        return ray
    try:
        _reach(address)
        _join(ray, address)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ExecutorError(
            what=f"no Ray cluster answers: {line(error)}",
            where=address,
            fix="Start one: graphopt fleet up --local 2, or ray start --head on its first machine.",
        ) from error
    return ray


def _join(ray: Any, address: str) -> None:
    """Connects; to a cluster outside again where the process that was to serve this client did not start."""
    for tries in range(MOST_TRIES):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except ConnectionError:
            if not address.startswith("ray://") or tries + 1 == MOST_TRIES:
                raise
        else:
            return


def _reach(address: str) -> None:
    """Connects once to an address that names a port: Ray itself would try for minutes.

    Raises:
        OSError: nothing listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), REACH_S).close()


def ask_for_machines(ray: Any, machines: int) -> Any:
    """Tells the autoscaler of a cluster, if it has one, how many machines there is work for.

    Args:
        ray: the module, connected.
        machines: that are wanted in all.

    Returns:
        What a client may wait for: it cannot tell the autoscaler itself, so a task on the head does.
    """
    from ray.util.client import ray as client

    if not client.is_connected():
        return _request_machines(machines)
    task = ray.remote(_request_machines)
    return task.options(num_cpus=0, resources={_HEAD: 0.001}).remote(machines)


def _request_machines(machines: int) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[{RESOURCE: 1}] * machines)


def line(error: Exception) -> str:
    """An error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def gone(why: str) -> ExecutorError:
    """What to raise where no cluster is left."""
    return ExecutorError(
        what=f"the cluster is gone: {why}",
        where="ray",
        fix="Start it again; the same command goes on with what was answered.",
    )


def is_of_ray(error: BaseException) -> bool:
    """True for what Ray, its connection or the system raises: the same call may work a moment later."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError | RuntimeError) or not _PACKAGES.isdisjoint(packages)
