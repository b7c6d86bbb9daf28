"""A cluster of nodes on this machine, whose processes can be found again by a mark in their environment."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphopt.executing.local_cluster import ENVIRONMENT, node_options

MARK = "GRAPHOPT_BENCHMARK_RUN"
SESSION = "GRAPHOPT_BENCHMARK_SESSION"


@contextlib.contextmanager
def cluster(nodes: int, head_measures: bool = True) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster`; whatever still runs of it at the end is an error."""
    os.environ.update(ENVIRONMENT)
    os.environ[MARK] = uuid.uuid4().hex
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    from ray.cluster_utils import Cluster

    options = node_options()
    if not head_measures:
        options = {**options, "resources": {}, "num_cpus": 0}
    made = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    os.environ[SESSION] = made.head_node.get_session_dir_path()
    try:
        for _ in range(nodes - head_measures):
            made.add_node(**node_options(), wait=False)
        made.wait_for_nodes(180.0)
        yield made
    finally:
        made.shutdown()
        left = left_over()
        del os.environ[MARK], os.environ[SESSION]
    if left:
        raise AssertionError(f"processes are left: {left}")


def marked() -> list[tuple[int, str]]:
    """Process ids and command lines of all processes of this run, this one not counted.

    They have the run's mark in their environment, or write to Ray's logs of it: Ray's workers write their
    name over the environment that others see.
    """
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (path / "environ").read_bytes().split(b"\0") or _writes_logs(path):
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((int(path.name), command.strip()))
    return found


def _writes_logs(path: Path) -> bool:
    session = os.environ.get(SESSION, "")
    if not session:
        return False
    return any(os.readlink(file).startswith(session) for file in (path / "fd").iterdir())


def left_over(wait_s: float = 30.0) -> list[tuple[int, str]]:
    """What still runs of this run after a while."""
    end = time.monotonic() + wait_s
    while (found := marked()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def write(out: Path, name: str, result: dict[str, Any]) -> None:
    """Writes a result."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
