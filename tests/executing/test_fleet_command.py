"""``graphopt fleet``: a cluster on this machine goes up and down; what is said where there is none."""

from __future__ import annotations

import json

import pytest
from support.processes import run_python

from graphopt.errors import ConfigError
from graphopt.executing import local_cluster
from graphopt.executing.executor import ExecutorError
from graphopt.executing.opening import open_executor
from graphopt.executing.places import (
    JAXLIB_LABEL,
    MACHINE_LABEL,
    RESOURCE,
    labels_here,
    may_fit,
    measures,
    start_flags,
)  # fmt: skip
from graphopt.executing.request import Needs


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_FLEET", str(tmp_path / "fleet.json"))
    return tmp_path / "fleet.json"


def test_where_there_is_no_cluster(own_state):
    assert local_cluster.status() == ("there is no cluster: graphopt fleet up --local 2", False)
    assert not local_cluster.down()
    own_state.write_text(json.dumps({"pid": 1, "started": "another time", "address": "x"}))
    assert not local_cluster.down(), "another process that has the number is not ended"
    own_state.write_text("{")
    assert not local_cluster.status()[1]


@pytest.mark.parametrize(("nodes", "cores"), [(0, 1), (1, 0)])
def test_numbers_that_make_no_sense(nodes, cores):
    with pytest.raises(ConfigError, match="nodes of"):
        local_cluster.up(nodes, cores)


def test_joining_needs_an_address():
    with pytest.raises(ConfigError, match="no cluster is named"):
        local_cluster.join("")


def test_a_cluster_that_does_not_answer():
    with pytest.raises(ExecutorError, match="no Ray cluster answers"):
        open_executor("ray:127.0.0.1:1")


def test_nodes_say_what_they_are():
    flags = start_flags({MACHINE_LABEL: "m", JAXLIB_LABEL: "1"})
    assert flags == [
        "--resources", '{"graphopt_machine": 1}', "--labels", f"{JAXLIB_LABEL}=1,{MACHINE_LABEL}=m",
    ]  # fmt: skip
    assert start_flags({MACHINE_LABEL: "m"}, measures=False)[0] == "--labels"
    node = {"Alive": True, "Resources": {RESOURCE: 1.0}, "Labels": labels_here()}
    assert measures(node) and may_fit(node, Needs())
    assert may_fit(node, Needs(machine=labels_here()[MACHINE_LABEL]))
    assert not may_fit(node, Needs(machine="other"))
    assert may_fit({**node, "Labels": {}}, Needs(machine="other")), "its actor will say"
    assert not measures({**node, "Alive": False}) and not measures({**node, "Resources": {}})


@pytest.mark.slow
def test_up_and_down(own_state):
    assert "--executor ray:" in local_cluster.up(1)
    state = json.loads(own_state.read_text())
    with pytest.raises(ConfigError, match="a cluster is up"):
        local_cluster.up(1)
    done = run_python("-m", "graphopt", "fleet", "status")
    assert done.returncode == 0, done.stderr
    assert "1 nodes, 1 machines idle" in done.stdout and "measures, 1 cores" in done.stdout
    assert local_cluster.down()
    assert not local_cluster.status()[1] and not own_state.exists()
    with pytest.raises(ExecutorError, match="no Ray cluster answers"):
        open_executor(f"ray:{state['address']}")
