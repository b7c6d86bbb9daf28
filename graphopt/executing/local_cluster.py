"""A Ray cluster on one machine, for trying out, held by a process of its own; and joining a real one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from graphopt.errors import ConfigError
from graphopt.executing.executor import ExecutorError
from graphopt.executing.places import RESOURCE, labels_here, start_flags
from graphopt.executing.ray_connection import connect
from graphopt.extras import require
from graphopt.locations import cache_path
from graphopt.progress import waiting

START_S: Final = 180.0
"""Longest start of all nodes."""

ENVIRONMENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
"""Of every process of a cluster: nothing is told to Ray's makers, and actors measure with usual priority.

What Ray forks only starts another program. With its handlers for forks, gRPC aborts some of these processes.
"""

END_S: Final = 60.0
"""Longest end of them."""

MEMORY: Final = 80 << 20
"""Bytes of each node's object store; requests are small, and the nodes share one machine."""


_PORTS: Final = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
"""Ports of a node's agents. A node that has to find them itself gives up after 15 s on a busy machine."""


_STARTED: Final[list[subprocess.Popen[bytes]]] = []
"""Clusters that this process started. They outlive it, so that nobody waits for them."""


def node_options(cores: int = 1, **labels: str) -> dict[str, Any]:
    """Of one node of `ray.cluster_utils.Cluster` that measures."""
    return {
        **dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)),
        "num_cpus": cores,
        "resources": {RESOURCE: 1},
        "labels": {**labels_here(), **labels},
        "object_store_memory": MEMORY,
    }


def free_ports(count: int) -> list[int]:
    """Ports that nothing on this machine uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def up(nodes: int, cores: int = 1, dashboard: bool = False) -> str:
    """Starts a cluster in the background; says where it is. An interrupt ends what has started.

    Raises:
        ConfigError: there is one already, or the numbers make no sense.
        ExecutorError: it does not start.
    """
    require("a cluster", "ray")
    if nodes < 1 or cores < 1:
        raise ConfigError(
            what=f"{nodes} nodes of {cores} cores", where="graphopt fleet up", fix="Give 1 or more."
        )
    if (found := _running()) is not None:
        raise ConfigError(
            what=f"a cluster is up: {found['address']}",
            where="graphopt fleet up",
            fix="End it with graphopt fleet down.",
        )
    path = _state_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    command = [sys.executable, "-m", __name__, str(path), f"{nodes}", f"{cores}", f"{dashboard:d}"]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    _STARTED.append(process)
    try:
        with waiting(Console(), f"starting {nodes} nodes, {START_S:.0f} s at most"):
            found = _awaited(process)
    except KeyboardInterrupt:
        _end(process)
        print(f"interrupted: no cluster; the log is {log}", file=sys.stderr)
        raise
    if found is not None:
        return _told(found)
    if process.poll() is None:
        process.terminate()
    last = log.read_text().strip().splitlines()[-1:] or ["it said nothing"]
    raise ExecutorError(
        what=f"the cluster did not start: {last[0][:200]}",
        where=str(log),
        fix="See the log.",
    )


def _awaited(process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """The state of the cluster that a process starts; None if it ends or takes too long."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        if (found := _running()) is not None:
            return found
        time.sleep(0.1)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that holds a cluster, and with it the nodes."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()  # Ray's reaper ends its nodes
        process.wait()


def _told(state: dict[str, Any]) -> str:
    return (
        f"{state['nodes']} nodes: --executor ray:{state['address']}, or from outside, as any machine that "
        f"reaches this one: --executor {state['client']}\n"
        "They share this machine, so times measured by several at once are not to be trusted. "
        "End it with graphopt fleet down."
    )


def down() -> bool:
    """Ends the cluster that `up` started; false if there is none."""
    state = _running()
    if state is None:
        return False
    os.kill(state["pid"], signal.SIGTERM)
    end = time.monotonic() + END_S
    with waiting(Console(), f"ending {state['nodes']} nodes, {END_S:.0f} s at most"):
        while _running() is not None:
            if time.monotonic() > end:
                os.kill(state["pid"], signal.SIGKILL)  # Ray's reaper ends its nodes
            time.sleep(0.1)
    for process in _STARTED:
        process.poll()
    _state_path().unlink(missing_ok=True)
    return True


def status(address: str = "") -> tuple[str, bool]:
    """The nodes of a cluster and what they are, and whether there is one."""
    if not address:
        state = _running()
        if state is None:
            return "there is no cluster: graphopt fleet up --local 2", False
        address = state["address"]
    ray = connect(address)
    try:
        lines = [_node(node) for node in ray.nodes() if node["Alive"]]
        free = ray.available_resources().get(RESOURCE, 0.0)
    finally:
        ray.shutdown()
    return "\n".join([f"{address}: {len(lines)} nodes, {free:g} machines idle", *lines]), True


def _node(node: dict[str, Any]) -> str:
    resources, labels = node.get("Resources") or {}, node.get("Labels") or {}
    kind = "measures" if resources.get(RESOURCE) else "does not measure"
    named = ", ".join(f"{k.rpartition('/')[2]} {v}" for k, v in labels.items() if "graphopt" in k)
    cores = resources.get("CPU", 0.0)
    name = f"{node['NodeID'][:8]} {node['NodeManagerHostname']}"
    return f"  {name}: {kind}, {cores:g} cores, {named or 'says nothing of itself'}"


def join(address: str, measures: bool = True) -> int:
    """Makes this machine a node of a cluster until it is ended; exit status of ``ray start``.

    Raises:
        ConfigError: no address is given.
    """
    require("a cluster", "ray")
    if not address:
        raise ConfigError(
            what="no cluster is named",
            where="graphopt fleet join",
            fix="Give HOST:PORT of its head, as ray start --head prints it.",
        )
    flags = ["--address", address, "--block", "--disable-usage-stats"]
    command = [*flags, *start_flags(labels_here(), measures=measures)]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", *command]
    return subprocess.call(start, env={**os.environ, **ENVIRONMENT})


def _state_path() -> Path:
    return cache_path("GRAPHOPT_FLEET", "fleet.json")


def _running() -> dict[str, Any] | None:
    """What `up` wrote, if the process that holds the cluster is alive."""
    try:
        state: dict[str, Any] = json.loads(_state_path().read_text())
        os.kill(state["pid"], 0)
        started = _started(state["pid"])
    except (OSError, ValueError, KeyError):
        return None
    return state if started == state["started"] else None


def _started(pid: int) -> str:
    """When a process began, so that another one with its number is not taken for it."""
    command = ["ps", "-o", "lstart=,stat=", "-p", str(pid)]
    line = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    *begin, state = line.split() or [""]
    return "" if state.startswith("Z") else " ".join(begin)


def main(arguments: list[str]) -> int:
    """``STATE NODES CORES DASHBOARD``: holds a cluster until it is told to end."""
    os.environ.update(ENVIRONMENT)
    from ray.cluster_utils import Cluster

    path, nodes, cores, dashboard = Path(arguments[0]), *map(int, arguments[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = None
    try:
        (port,) = free_ports(1)
        head = {
            **node_options(cores),
            "include_dashboard": bool(dashboard),
            "ray_client_server_port": port,
        }
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(nodes - 1):
            cluster.add_node(**node_options(cores), wait=False)
        cluster.wait_for_nodes(START_S)
        state = {
            "pid": os.getpid(), "started": _started(os.getpid()), "address": cluster.address,
            "client": f"ray://{cluster.address.rpartition(':')[0]}:{port}", "nodes": nodes,
        }  # fmt: skip
        part = path.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.replace(path)
        while True:
            signal.pause()
    finally:
        if cluster is not None:
            with contextlib.suppress(Exception):  # nodes that are gone already
                cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
