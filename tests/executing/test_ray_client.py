"""``ray://HOST:PORT``: a cluster of which this machine is no node, through Ray's client."""

from __future__ import annotations

import json

import pytest
from support.processes import environment, run_python

from graphopt.executing import local_cluster
from graphopt.executing.executor import ExecutorError
from graphopt.executing.local_cluster import free_ports
from graphopt.executing.opening import open_executor

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

SCRIPT = """
import json, os, signal, sys
from graphopt.executing.executor import own_needs
from graphopt.executing.opening import open_executor
from support.fleet import numbered

spec, kill = sys.argv[1], sys.argv[2] == "kill"
answers = []
with open_executor(spec) as executor:
    for number in range(6):
        executor.submit(numbered(number, own_needs(), seconds=0.2, fails=number == 5))
    for answer in executor.results():
        if kill and not answers:
            os.kill(answer.body["pid"], signal.SIGKILL)
        answers.append(answer)
print(json.dumps([[a.status, a.body.get("number"), a.body.get("pid"), a.place] for a in answers]))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of a cluster that another process holds, for clients; this process is not connected to it."""
    state = tmp_path_factory.mktemp("fleet") / "fleet.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_FLEET", str(state))
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        told = local_cluster.up(1)
        found = json.loads(state.read_text())["client"]
        assert f"--executor {found}" in told
        yield found
        local_cluster.down()


@pytest.mark.parametrize("kill", ["", "kill"])
def test_requests_are_answered_from_outside(address, kill):
    done = run_python("-c", SCRIPT, address, kill)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert sorted(number for _, number, _, _ in answers if number is not None) == list(range(5))
    assert sorted({status for status, *_ in answers}) == ["failed", "ok"]
    assert len({pid for _, _, pid, _ in answers if pid}) == (2 if kill else 1)
    assert all(place for *_, place in answers)


def test_a_cluster_that_is_not_there():
    (port,) = free_ports(1)
    with pytest.raises(ExecutorError, match="no Ray cluster answers"):
        open_executor(f"ray://127.0.0.1:{port}")
