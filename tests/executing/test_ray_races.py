"""What Ray may do between two calls of it: no request is lost, none is answered twice."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
from support.fleet import numbered

from graphopt.executing import ray_executor
from graphopt.executing.executor import ExecutorError
from graphopt.executing.places import RESOURCE, facts_here
from graphopt.executing.ray_executor import MOST_STARTS, RayExecutor
from graphopt.executing.request import OK, Answer

ray = pytest.importorskip("ray")


def died():
    return ray.exceptions.RayActorError()


class Ref:
    """What Ray answers a call with: of facts if there is no request."""

    def __init__(self, node, request=None):
        self.node, self.request = node, request


class Ray:
    """A cluster of nodes that answer at once, but for what `faults` says.

    Attributes:
        faults: (what is called, number of the request or name of the node) -> errors that it raises, in turn.
        answered: numbers of the requests whose work was done.
    """

    exceptions = ray.exceptions

    def __init__(self, *nodes):
        self.names, self.faults, self.answered, self.killed = nodes, {}, [], []

    def fails(self, what, which, *errors):
        self.faults[what, which] = deque(errors)

    def raise_fault(self, what, which):
        faults = self.faults.get((what, which))
        if faults and (error := faults.popleft()) is not None:
            raise error

    def nodes(self):
        self.raise_fault("nodes", "")
        resources = {RESOURCE: 1.0, "CPU": 1.0}
        return [{"NodeID": name, "Alive": True, "Resources": resources} for name in self.names]

    def is_initialized(self):
        return True

    def remote(self, kind):
        return SimpleNamespace(options=self.options)

    def options(self, scheduling_strategy, **_):
        node = scheduling_strategy.node_id

        def start():
            self.raise_fault("start", node)
            return SimpleNamespace(
                node=node,
                facts=SimpleNamespace(remote=lambda: Ref(node)),
                answer=SimpleNamespace(remote=lambda request: self.asked(node, request)),
            )

        return SimpleNamespace(remote=start)

    def asked(self, node, request):
        self.raise_fault("ask", request.body["number"])
        return Ref(node, request)

    def wait(self, refs, timeout=None):
        return [refs[-1]], refs[:-1]

    def get(self, ref):
        if ref.request is None:
            self.raise_fault("facts", ref.node)
            return facts_here()
        number = ref.request.body["number"]
        self.raise_fault("get", number)
        self.answered.append(number)
        return Answer(ref.request.id, OK, {"number": number})

    def kill(self, actor):
        self.killed.append(actor.node)
        self.raise_fault("kill", actor.node)


@pytest.fixture
def clock(monkeypatch):
    """Time that only passes where somebody waits."""
    now = [1000.0]
    monkeypatch.setattr(
        ray_executor,
        "time",
        SimpleNamespace(
            monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + max(s, 0.01))
        ),
    )
    return now


@pytest.fixture
def made(monkeypatch, clock):
    """Makes an executor on a cluster of named nodes."""

    def make(*nodes, patience_s=30.0):
        fake = Ray(*nodes)
        monkeypatch.setattr(ray_executor, "connect", lambda address: fake)
        monkeypatch.setattr(RayExecutor, "_scale", lambda self, machines: None)
        monkeypatch.setattr(
            "ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy",
            lambda node, soft: SimpleNamespace(node_id=node),
        )
        return fake, RayExecutor(patience_s=patience_s)

    return make


def numbers(executor, count=4):
    for number in range(count):
        executor.submit(numbered(number))
    return sorted(answer.body["number"] for answer in executor.results())


def test_everything_is_answered_once(made):
    fake, executor = made("a", "b")
    assert numbers(executor, 9) == sorted(fake.answered) == list(range(9))


@pytest.mark.parametrize("error", [ConnectionError("reset"), RuntimeError("not connected"), died()])
@pytest.mark.parametrize(
    ("what", "which"), [("ask", 2), ("start", "a"), ("nodes", ""), ("kill", "a"), ("get", 1)]
)
def test_a_call_that_raises_loses_nothing(made, what, which, error):
    fake, executor = made("a")
    fake.fails(what, which, error, None, error)
    if what == "kill":
        fake.fails("get", 1, died())
    assert numbers(executor) == sorted(fake.answered) == [0, 1, 2, 3]
    assert len(fake.faults[what, which]) < 3, "it was raised"


def test_an_error_that_no_one_expects_loses_nothing(made):
    fake, executor = made("a")
    fake.fails("get", 0, ValueError("cannot be unpickled"), KeyError("nor this"))
    assert numbers(executor) == [0, 1, 2, 3]


def test_a_mistake_of_ours_is_not_waited_out(made):
    fake, executor = made("a")
    fake.fails("nodes", "", KeyError("a mistake"))
    with pytest.raises(KeyError):
        numbers(executor)


def test_what_was_answered_before_its_machine_died_is_not_done_again(made):
    fake, executor = made("a")
    fake.fails("get", 1, died())  # it is looked at first, and 0 has been answered meanwhile
    assert numbers(executor, 2) == [0, 1]
    assert fake.answered == [0, 1]


def test_a_request_is_blamed_only_for_deaths_while_it_was_in_work(made, monkeypatch):
    monkeypatch.setattr(ray_executor, "MOST_TRIES", 3)
    fake, executor = made("a")
    fake.fails("get", 0, *[died()] * 3)
    for number in range(3):
        executor.submit(numbered(number))
    found = {answer.id: answer for answer in executor.results()}
    assert {answer.status for answer in found.values()} == {"lost", "ok"}
    assert found[numbered(0).id].tries == 3
    assert all(found[numbered(number).id].ok for number in (1, 2))


def test_a_node_that_ray_does_not_know_yet_is_tried_again(made, clock):
    fake, executor = made("new")
    fake.fails("facts", "new", *[died()] * (2 * MOST_STARTS))
    begin = clock[0]
    executor.patience_s = 1000.0
    assert numbers(executor) == [0, 1, 2, 3]
    assert clock[0] - begin > ray_executor.REST_S


def test_a_node_whose_actor_never_starts_is_named(made):
    fake, executor = made("bad")
    fake.fails("facts", "bad", *[died()] * 100)
    with pytest.raises(ExecutorError, match="its actor does not start"):
        numbers(executor)


def test_starts_count_in_a_row_only(made, clock):
    fake, executor = made("a")
    fake.fails("facts", "a", died(), None, died(), None, died(), None)
    fake.fails("get", 0, died(), died())
    begin = clock[0]
    assert numbers(executor) == [0, 1, 2, 3]
    assert clock[0] - begin < ray_executor.REST_S


def test_a_cluster_at_which_every_call_fails_is_gone(made, clock):
    fake, executor = made("a")
    fake.fails("nodes", "", *[ConnectionError("refused")] * 1000)
    begin = clock[0]
    with pytest.raises(ExecutorError, match="the cluster is gone: ConnectionError: refused"):
        numbers(executor)
    assert ray_executor.TROUBLE_S <= clock[0] - begin < 2 * ray_executor.TROUBLE_S


def test_who_stops_asking_for_answers_finds_the_others_later(made):
    fake, executor = made("a")
    for number in range(5):
        executor.submit(numbered(number))
    fake.fails("get", 1, died())
    found = []
    while len(found) < 5:
        for answer in executor.results():
            found.append(answer.body["number"])
            break
    assert sorted(found) == sorted(fake.answered) == list(range(5))


def test_closing_a_cluster_that_is_gone(made):
    fake, executor = made("a")
    executor.submit(numbered(0))
    list(executor.results())
    fake.fails("kill", "a", ConnectionError("gone"))
    executor.close()
    assert fake.killed == ["a"]
