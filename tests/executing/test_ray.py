"""The seam on a real Ray cluster of two nodes: once each, whatever dies, only by machines that fit."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.fleet import numbered

from graphopt.executing import ray_executor
from graphopt.executing.executor import ExecutorError, own_needs
from graphopt.executing.local_cluster import ENVIRONMENT, node_options
from graphopt.executing.ray_executor import RayExecutor
from graphopt.executing.request import Needs

pytest.importorskip("ray")
# Ray forks where it watches its own processes; jax, which other tests have imported, warns of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

MOST = 1000
"""Short requests while the second actor starts."""


@pytest.fixture(scope="module")
def cluster():
    """Two nodes; ends with all its processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(__file__)), prepend=os.pathsep)
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=node_options())
        cluster.add_node(**node_options())
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def executor(cluster):
    with RayExecutor(patience_s=20.0) as executor:
        yield executor


def test_requests_are_answered_once_by_both_machines(executor):
    for number in [*range(12), 3, 4]:
        executor.submit(numbered(number, own_needs(), seconds=0.05))
    answers = []
    for answer in executor.results():
        answers.append(answer)
        if len({a.body["pid"] for a in answers}) == 1 and len(answers) < MOST:  # one starts later
            executor.submit(numbered(len(answers) + 11, own_needs(), seconds=0.05))
    numbers = sorted(a.body["number"] for a in answers)
    assert numbers == list(range(len(answers))) and len(numbers) >= 12
    assert len({a.body["pid"] for a in answers}) == 2
    assert all(a.ok and a.place for a in answers)
    assert os.getpid() not in {a.body["pid"] for a in answers}


def test_an_error_of_the_work_is_its_answer(executor):
    executor.submit(numbered(1, fails=True))
    (answer,) = executor.results()
    assert (answer.status, answer.detail) == ("failed", "ValueError: it cannot be measured")


def test_killed_actors_lose_nothing_and_do_nothing_twice(executor):
    for number in range(10):
        executor.submit(numbered(number, seconds=0.2))
    killed, answers = set(), []
    for answer in executor.results():
        answers.append(answer)
        if len(killed) < 2 and answer.body["pid"] not in killed:
            killed.add(answer.body["pid"])
            os.kill(answer.body["pid"], signal.SIGKILL)
    assert sorted(a.body["number"] for a in answers) == list(range(10))
    assert killed and len({a.body["pid"] for a in answers}) > len(killed)
    assert max(a.tries for a in answers) <= 3


def test_what_kills_its_process_each_time_is_given_up(executor, monkeypatch):
    monkeypatch.setattr(ray_executor, "MOST_TRIES", 2)
    executor.submit(numbered(1, dies=True))
    executor.submit(numbered(2))
    answers = {a.id: a for a in executor.results()}
    lost, good = (answers[numbered(1, dies=True).id], answers[numbered(2).id])
    assert (lost.status, lost.tries) == ("lost", 2)
    assert good.ok


def test_no_machine_of_the_kind(cluster):
    with RayExecutor(patience_s=0.2) as executor:
        executor.submit(numbered(1, Needs(machine="other")))
        with pytest.raises(ExecutorError, match="no machine for machine other"):
            list(executor.results())


def test_a_node_that_dies(cluster, executor):
    third = cluster.add_node(**node_options())
    for number in range(8):
        executor.submit(numbered(number, own_needs(), seconds=0.2))
    answers = []
    for answer in executor.results():
        answers.append(answer)
        if len(answers) == 2:
            cluster.remove_node(third, allow_graceful=False)
    assert sorted(a.body["number"] for a in answers) == list(range(8))


def test_closing_ends_the_actors_and_frees_the_machines(cluster):
    with RayExecutor() as executor:
        executor.submit(numbered(1))
        (answer,) = executor.results()
    end = time.monotonic() + 30.0
    while _alive(answer.body["pid"]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(answer.body["pid"])


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
