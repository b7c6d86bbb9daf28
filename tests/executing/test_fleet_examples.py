"""The examples of clusters are what Docker Compose, Kubernetes and KubeRay accept, as far as schemas say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from graphopt.executing.places import RESOURCE

FOLDER = Path(__file__).parents[2] / "examples" / "fleet"

GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
KNOWN = {
    "spec": {"enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"},
    "headGroupSpec": {"rayStartParams", "template"},
}
"""Fields of a RayCluster that the example may use; the cluster's own resource definition has more."""


def documents() -> list[dict]:
    return list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))


def ray_cluster() -> dict:
    return next(d for d in documents() if d["kind"] == "RayCluster")


def valid(document: dict) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_compose_accepts_its_file():
    command = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [sys.executable, "-m", *command, str(FOLDER / "compose.yaml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_kubernetes_accepts_what_is_its_own():
    own = [document for document in documents() if document["kind"] != "RayCluster"]
    assert {document["kind"] for document in own} == {"Service", "StatefulSet"}
    for document in own:
        valid(document)


def test_kubernetes_accepts_the_pods_of_the_cluster():
    spec = ray_cluster()["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **group["template"]}
        valid({**pod, "metadata": {"name": "p", **group["template"].get("metadata", {})}})
        with pytest.raises(kubernetes_validate.ValidationError):
            valid({**pod, "metadata": {"name": "p"}, "spec": {"containers": [{"image": 3}]}})


def test_the_cluster_uses_fields_that_there_are():
    cluster = ray_cluster()
    assert cluster["apiVersion"] == "ray.io/v1"
    spec = cluster["spec"]
    assert spec.keys() <= KNOWN["spec"] and spec["headGroupSpec"].keys() <= KNOWN["headGroupSpec"]
    for group in spec["workerGroupSpecs"]:
        assert group.keys() <= GROUP
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_workers_measure_and_heads_do_not():
    spec = ray_cluster()["spec"]
    assert "resources" not in spec["headGroupSpec"]["rayStartParams"]
    for group in spec["workerGroupSpecs"]:
        assert RESOURCE in group["rayStartParams"]["resources"]
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert services["worker"]["command"].startswith("graphopt fleet join")
    assert RESOURCE not in services["head"]["command"]
