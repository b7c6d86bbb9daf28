"""Requests on a Ray cluster: one measuring actor per machine, whatever dies is tried again elsewhere."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from graphopt.closing import Closing
from graphopt.executing.executor import ExecutorError
from graphopt.executing.places import RESOURCE, Facts, facts_here, may_fit, measures
from graphopt.executing.ray_actor import MeasuringActor
from graphopt.executing.request import LOST, Answer, Request
from graphopt.executing.telemetry import told
from graphopt.extras import require

LOGGER: Final = logging.getLogger("graphopt.executing")

MOST_TRIES: Final = 5
"""A request whose process died this often kills it: it is given up."""

MOST_STARTS: Final = 3
"""A machine on which the actor died this often before it said what it is, is left alone."""

PATIENCE_S: Final = 300.0
"""How long a request waits for a first machine that meets its needs: a cluster may be starting one."""

MOST_MACHINES: Final = 1000
"""An autoscaler is asked for so many at most; the cluster's own limit is usually lower."""

DEPTH: Final = 2
"""Requests that a machine has at hand: it need not wait for a busy driver between two."""

LOOK_S: Final = 1.0
"""Seconds between looks at which machines there are."""

POLL_S: Final = 0.5

REACH_S: Final = 10.0
"""Longest wait for the head of a cluster to take a connection."""


@dataclass(eq=False)
class _Machine:
    """One node with its actor.

    Attributes:
        node: Ray's id of it.
        actor: handle.
        facts: what it said of itself; None until then.
        requests: what it works on, and what it has at hand for then.
    """

    node: str
    actor: Any
    facts: Facts | None = None
    requests: deque[Request] = field(default_factory=deque)

    def fits(self, request: Request) -> bool:
        """True if it may answer."""
        facts = self.facts
        return facts is not None and request.needs.met_by(facts.machine, facts.jaxlib)


class RayExecutor(Closing):
    """Machines of a Ray cluster that have the resource ``graphopt_machine``.

    Placement, health checks, transport and scaling are Ray's. What is done here is what Ray cannot know:
    which machine's times answer a request, and that a request of a dead machine goes to any other one.
    """

    batch = 8

    def __init__(self, address: str = "auto", *, patience_s: float = PATIENCE_S) -> None:
        """Connects; starts no actor yet.

        Args:
            address: of the cluster, as ``ray.init`` takes it. A connection that there is already is used.
            patience_s: how long a request waits for a first machine that meets its needs.

        Raises:
            MissingExtraError: Ray is not installed.
            ExecutorError: there is no cluster.
        """
        require("a cluster", "ray")
        self._ray = connect(address)
        self.patience_s = patience_s
        self._here = facts_here()
        self._waiting: deque[Request] = deque()
        self._tries: dict[str, int] = {}
        self._machines: dict[str, _Machine] = {}
        self._refs: dict[Any, tuple[_Machine, Request | None]] = {}
        self._starts: dict[str, int] = {}
        self._left_alone: dict[str, str] = {}
        self._looked = float("-inf")
        self._asked_for = 0
        self._starved_since: float | None = None

    def submit(self, request: Request) -> None:
        """Takes a request; a machine that has none at hand gets it at once."""
        if request.id not in self._tries:
            self._tries[request.id] = 0
            self._waiting.append(request)
            self._hand_out()

    def results(self) -> Iterator[Answer]:
        """Answers as they come.

        Raises:
            ExecutorError: the cluster is gone, or for too long has had no machine that may answer.
        """
        while self._waiting or any(m.requests for m in self._machines.values()):
            try:
                self._staff()
                self._hand_out()
                found = self._finished()
                self._hand_out()  # before the answers keep us busy
            except (ConnectionError, self._ray.exceptions.RaySystemError) as error:
                raise _gone(str(error)) from error
            yield from found
            self._check_patience()

    @property
    def hungry(self) -> bool:
        """True if less than two requests a machine wait."""
        return len(self._waiting) < 2 * max(1, len(self._machines))

    def drop(self, unwanted: Callable[[Request], bool] = lambda request: True) -> None:
        """Forgets requests that have not begun."""
        for request in [r for r in self._waiting if unwanted(r)]:
            self._waiting.remove(request)
            del self._tries[request.id]

    def close(self) -> None:
        """Ends the actors, and with them whatever they started."""
        for machine in list(self._machines.values()):
            self._dismiss(machine)
        self._waiting.clear()
        if self._ray.is_initialized():
            self._scale(0)

    def _staff(self) -> None:
        """Starts an actor on every machine that has none and may meet what waits."""
        if not self._waiting or time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        wanted = {r.needs for r in self._waiting}
        room = len(self._waiting) - sum(not m.requests for m in self._machines.values())
        for node in self._ray.nodes():
            name = node["NodeID"]
            if name in self._machines or name in self._left_alone or not measures(node):
                continue
            if room > 0 and any(may_fit(node, needs) for needs in wanted):
                room -= 1
                self._start(name, node["Resources"].get("CPU", 0.0))
        self._scale(len(self._machines) + max(0, room))

    def _scale(self, machines: int) -> None:
        """Tells Ray's autoscaler, if the cluster has one, how many machines there is work for."""
        machines = min(machines, MOST_MACHINES)
        if machines != self._asked_for:
            from ray.autoscaler.sdk import request_resources

            request_resources(bundles=[{RESOURCE: 1}] * machines)
            self._asked_for = machines

    def _start(self, node: str, cores: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {
            "num_cpus": cores,
            "resources": {RESOURCE: 1},
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
            "max_restarts": 0,  # an actor may only come back where it was: others take its work
        }
        actor = self._ray.remote(MeasuringActor).options(**options).remote()
        machine = self._machines[node] = _Machine(node, actor)
        self._refs[actor.facts.remote()] = machine, None

    def _hand_out(self) -> None:
        for depth in range(DEPTH):
            for machine in self._machines.values():
                if self._waiting and machine.facts is not None and len(machine.requests) == depth:
                    self._give(machine)

    def _give(self, machine: _Machine) -> None:
        """Hands the first request that fits to a machine."""
        request = next((r for r in self._waiting if machine.fits(r)), None)
        if request is not None:
            self._waiting.remove(request)
            machine.requests.append(request)
            self._refs[machine.actor.answer.remote(request)] = machine, request

    def _finished(self) -> list[Answer]:
        """What has come within a moment."""
        if not self._refs:
            time.sleep(POLL_S)
            return []
        done, _ = self._ray.wait(list(self._refs), timeout=POLL_S)
        answers = (self._take(ref) for ref in done)
        return [answer for answer in answers if answer is not None]

    def _take(self, ref: Any) -> Answer | None:
        if ref not in self._refs:  # of a machine that died a moment ago
            return None
        machine, request = self._refs.pop(ref)
        try:
            value = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return self._died(machine, error)
        if request is None:
            self._welcome(machine, value)
            return None
        machine.requests.remove(request)
        answer: Answer = replace(value, tries=self._tries.pop(request.id) + 1)
        told(request, answer)
        return answer

    def _welcome(self, machine: _Machine, facts: Facts) -> None:
        if facts.source == self._here.source:
            machine.facts = facts
            LOGGER.info("measuring machine: %s, node %s", facts.place, machine.node[:8])
        else:
            self._leave_alone(machine, f"{facts.place} runs another version of graphopt")

    def _leave_alone(self, machine: _Machine, why: str) -> None:
        self._left_alone[machine.node] = why
        LOGGER.warning("a machine is not used: %s", why)
        self._dismiss(machine)

    def _died(self, machine: _Machine, error: Exception) -> Answer | None:
        """Puts what a dead actor had back in front of the queue; what it worked on may be given up."""
        requests = list(machine.requests)
        LOGGER.warning("the actor on node %s died: %s", machine.node[:8], _line(error))
        if machine.facts is None:
            self._starts[machine.node] = self._starts.get(machine.node, 0) + 1
        if self._starts.get(machine.node, 0) >= MOST_STARTS:
            self._leave_alone(machine, f"its actor does not start: {_line(error)}")
        else:
            self._dismiss(machine)
        self._looked = float("-inf")
        if not requests:
            return None
        first = requests[0]  # the others had not begun
        self._tries[first.id] += 1
        given_up = self._tries[first.id] >= MOST_TRIES
        self._waiting.extendleft(reversed(requests[given_up:]))
        if not given_up:
            return None
        answer = Answer(first.id, LOST, tries=self._tries.pop(first.id), detail=_line(error))
        told(first, answer)
        return answer

    def _dismiss(self, machine: _Machine) -> None:
        """Ends an actor, dead or not: one that is only cut off must not go on measuring."""
        self._machines.pop(machine.node, None)
        self._refs = {ref: of for ref, of in self._refs.items() if of[0] is not machine}
        if self._ray.is_initialized():
            self._ray.kill(machine.actor)

    def _check_patience(self) -> None:
        """Gives up where no machine works, starts or fits."""
        able = any(
            m.facts is None or m.requests or any(m.fits(r) for r in self._waiting)
            for m in self._machines.values()
        )
        if able or not self._waiting:
            self._starved_since = None
            return
        now = time.monotonic()
        self._starved_since = self._starved_since or now
        if now - self._starved_since >= self.patience_s:
            there = [m.facts.place for m in self._machines.values() if m.facts is not None]
            there += self._left_alone.values()
            raise ExecutorError(
                what=f"no machine for {self._waiting[0].needs} in {self.patience_s:g} s; "
                f"there are: {'; '.join(there) or 'none'}",
                where=self._waiting[0].label or self._waiting[0].work,
                fix="Add such a machine: graphopt fleet join ADDRESS. The same command goes on.",
            )


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
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ExecutorError(
            what=f"no Ray cluster answers: {_line(error)}",
            where=address,
            fix="Start one: graphopt fleet up --local 2, or ray start --head on its first machine.",
        ) from error
    return ray


def _reach(address: str) -> None:
    """Connects once to an address that names a port: Ray itself would try for minutes.

    Raises:
        OSError: nothing listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), REACH_S).close()


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _gone(why: str) -> ExecutorError:
    return ExecutorError(
        what=f"the cluster is gone: {why}",
        where="ray",
        fix="Start it again; the same command goes on with what was answered.",
    )
