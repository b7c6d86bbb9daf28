"""Requests on a Ray cluster: one measuring actor per machine, whatever dies is tried again elsewhere."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from graphopt.closing import Closing
from graphopt.executing.executor import ExecutorError
from graphopt.executing.places import RESOURCE, Facts, facts_here, may_fit, measures
from graphopt.executing.ray_actor import MeasuringActor
from graphopt.executing.ray_connection import ask_for_machines, connect, gone, is_of_ray, line
from graphopt.executing.request import LOST, Answer, Request
from graphopt.executing.telemetry import told
from graphopt.extras import require

LOGGER: Final = logging.getLogger("graphopt.executing")

MOST_TRIES: Final = 5
"""A request whose process died this often kills it: it is given up."""

MOST_STARTS: Final = 3
"""A machine on which the actor died this often in a row before it said what it is, rests for `REST_S`."""

REST_S: Final = 60.0

PATIENCE_S: Final = 300.0
"""How long a request waits for a first machine that meets its needs: a cluster may be starting one."""

MOST_MACHINES: Final = 1000
"""An autoscaler is asked for so many at most; the cluster's own limit is usually lower."""

DEPTH: Final = 2
"""Requests that a machine has at hand: it need not wait for a busy driver between two."""

LOOK_S: Final = 1.0
"""Seconds between looks at which machines there are."""

POLL_S: Final = 0.5

RELEASE_S: Final = 5.0
"""Longest wait for a cluster outside to take note that no machine is needed any more."""

TROUBLE_S: Final = 20.0
"""How long Ray may raise errors at everything that is asked of it, before the cluster counts as gone."""


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
        self._ready: deque[Answer] = deque()
        self._starts: dict[str, int] = {}
        self._rests: dict[str, tuple[float, str]] = {}
        self._left_alone: dict[str, str] = {}
        self._looked = float("-inf")
        self._asked_for = 0
        self._scaling: Any = None
        self._starved_since: float | None = None
        self._troubled_since: float | None = None

    def submit(self, request: Request) -> None:
        """Takes a request; a machine that has none at hand gets it at once."""
        if request.id not in self._tries:
            self._tries[request.id] = 0
            self._waiting.append(request)
            self._steadily(self._hand_out)

    def results(self) -> Iterator[Answer]:
        """Answers as they come.

        Raises:
            ExecutorError: the cluster is gone, or for too long has had no machine that may answer.
        """
        while self._ready or self._waiting or any(m.requests for m in self._machines.values()):
            if self._ready:
                yield self._ready.popleft()
            elif self._steadily(self._turn):
                self._check_patience()
            else:
                time.sleep(POLL_S)

    def _turn(self) -> None:
        self._staff()
        self._hand_out()
        self._finish()
        self._hand_out()  # before the answers keep us busy

    def _steadily(self, action: Callable[[], None]) -> bool:
        """Does something with Ray; true if Ray raised nothing. What it did not do is done next time.

        Raises:
            ExecutorError: Ray has raised errors for `TROUBLE_S`.
        """
        try:
            action()
        except Exception as error:
            if not is_of_ray(error):
                raise
            now = time.monotonic()
            self._troubled_since = self._troubled_since or now
            LOGGER.warning("Ray: %s", line(error))
            if now - self._troubled_since >= TROUBLE_S:
                raise gone(line(error)) from error
            return False
        self._troubled_since = None
        return True

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
        self._ready.clear()
        if self._ray.is_initialized():
            self._steadily(self._release)

    def _release(self) -> None:
        """The autoscaler may end machines; a client waits until it has been told."""
        self._scale(0)
        if self._scaling is not None:
            self._ray.wait([self._scaling], timeout=RELEASE_S)

    def _staff(self) -> None:
        """Starts an actor on every machine that has none and may meet what waits."""
        if not self._waiting or time.monotonic() - self._looked < LOOK_S:
            return
        nodes = self._ray.nodes()
        self._looked = time.monotonic()
        wanted = {r.needs for r in self._waiting}
        room = len(self._waiting) - sum(not m.requests for m in self._machines.values())
        for node in nodes:
            name = node["NodeID"]
            if name in self._machines or not self._may_start(name) or not measures(node):
                continue
            if room > 0 and any(may_fit(node, needs) for needs in wanted):
                room -= 1
                self._start(name, node["Resources"].get("CPU", 0.0))
        self._scale(len(self._machines) + max(0, room))

    def _scale(self, machines: int) -> None:
        """Tells Ray's autoscaler, if the cluster has one, how many machines there is work for."""
        machines = min(machines, MOST_MACHINES)
        if machines != self._asked_for:
            self._scaling = ask_for_machines(self._ray, machines)
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
        facts = actor.facts.remote()
        machine = self._machines[node] = _Machine(node, actor)
        self._refs[facts] = machine, None

    def _may_start(self, node: str) -> bool:
        until, _ = self._rests.get(node, (0.0, ""))
        return node not in self._left_alone and time.monotonic() >= until

    def _hand_out(self) -> None:
        for depth in range(DEPTH):
            for machine in self._machines.values():
                if self._waiting and machine.facts is not None and len(machine.requests) == depth:
                    self._give(machine)

    def _give(self, machine: _Machine) -> None:
        """Hands the first request that fits to a machine."""
        request = next((r for r in self._waiting if machine.fits(r)), None)
        if request is not None:
            ref = machine.actor.answer.remote(request)  # may raise: then the request waits on
            self._refs[ref] = machine, request
            self._waiting.remove(request)
            machine.requests.append(request)

    def _finish(self) -> None:
        """Takes what has come within a moment."""
        if not self._refs:
            time.sleep(POLL_S)
            return
        done, _ = self._ray.wait(list(self._refs), timeout=POLL_S)
        for ref in done:
            if ref in self._refs:  # not of a machine that died a moment ago
                self._take(ref)

    def _take(self, ref: Any) -> None:
        machine, request = self._refs.pop(ref)
        try:
            value = self._ray.get(ref)
        except Exception as error:  # whatever it is, no answer can come any more
            self._died(machine, error)
            return
        if request is None:
            self._welcome(machine, value)
        else:
            self._answered(machine, request, value)

    def _answered(self, machine: _Machine, request: Request, value: Answer) -> None:
        machine.requests.remove(request)
        self._come(request, replace(value, tries=self._tries.pop(request.id) + 1))

    def _come(self, request: Request, answer: Answer) -> None:
        told(request, answer)
        self._ready.append(answer)

    def _welcome(self, machine: _Machine, facts: Facts) -> None:
        if facts.source == self._here.source:
            machine.facts = facts
            self._starts.pop(machine.node, None)
            self._rests.pop(machine.node, None)
            LOGGER.info("measuring machine: %s, node %s", facts.place, machine.node[:8])
        else:
            why = f"{facts.place} runs another version of graphopt"
            self._left_alone[machine.node] = why
            LOGGER.warning("a machine is not used: %s", why)
            self._dismiss(machine)

    def _died(self, machine: _Machine, error: Exception) -> None:
        """Puts what a dead actor had back in front of the queue; what it worked on may be given up."""
        LOGGER.warning("the actor on node %s died: %s", machine.node[:8], line(error))
        self._rescue(machine)
        requests = list(machine.requests)
        if machine.facts is None:
            self._rest(machine.node, line(error))
        self._dismiss(machine)
        self._looked = float("-inf")
        if not requests:
            return
        first = requests[0]  # the others had not begun
        self._tries[first.id] += 1
        given_up = self._tries[first.id] >= MOST_TRIES
        self._waiting.extendleft(reversed(requests[given_up:]))
        if given_up:
            tries = self._tries.pop(first.id)
            self._come(first, Answer(first.id, LOST, tries=tries, detail=line(error)))

    def _rescue(self, machine: _Machine) -> None:
        """Takes what a machine had answered before it died."""
        for ref, (of, request) in list(self._refs.items()):
            if of is machine and request is not None:
                with contextlib.suppress(Exception):  # it died with its machine
                    if self._ray.wait([ref], timeout=0)[0]:
                        value = self._ray.get(ref)
                        del self._refs[ref]
                        self._answered(machine, request, value)

    def _rest(self, node: str, why: str) -> None:
        """No actor is started on a node for a while, since the last one said nothing.

        A node that has just joined may not be known to all of Ray yet.
        """
        starts = self._starts[node] = self._starts.get(node, 0) + 1
        rest_s = LOOK_S * 2 ** (starts - 1) if starts < MOST_STARTS else REST_S
        self._rests[node] = time.monotonic() + rest_s, f"its actor does not start: {why}"
        if starts >= MOST_STARTS:
            LOGGER.warning("a machine is not used for %g s: %s", rest_s, self._rests[node][1])

    def _dismiss(self, machine: _Machine) -> None:
        """Ends an actor, dead or not: one that is only cut off must not go on measuring."""
        self._machines.pop(machine.node, None)
        self._refs = {ref: of for ref, of in self._refs.items() if of[0] is not machine}
        if self._ray.is_initialized():
            try:
                self._ray.kill(machine.actor)
            except Exception as error:  # Ray may not know it any more, or not be there itself
                LOGGER.info("the actor on node %s: %s", machine.node[:8], line(error))

    def _check_patience(self) -> None:
        """Gives up where no machine works or fits, and none is starting."""
        machines = self._machines.values()
        if not self._waiting or any(
            m.requests or any(m.fits(r) for r in self._waiting) for m in machines
        ):
            self._starved_since = None
            return
        now = time.monotonic()
        self._starved_since = self._starved_since or now
        starting = any(m.facts is None for m in machines)
        if not starting and now - self._starved_since >= self.patience_s:
            there = [m.facts.place for m in machines if m.facts is not None]
            there += [*self._left_alone.values(), *(why for _, why in self._rests.values())]
            raise ExecutorError(
                what=f"no machine for {self._waiting[0].needs} in {self.patience_s:g} s; "
                f"there are: {'; '.join(there) or 'none'}",
                where=self._waiting[0].label or self._waiting[0].work,
                fix="Add such a machine: graphopt fleet join ADDRESS. The same command goes on.",
            )
