"""What the heuristic and the shipped policy decide for captured modules, as digests.

``modules.tar.xz`` holds the HLO module of every program of the corpus and of the demo as XLA:CPU hands
it to the hook, so that the digests do not depend on the machine or the jaxlib that runs the test. After a
change that is meant to change decisions, run ``python tests/golden/record.py`` and read the difference of
``decisions.json``.
"""

import hashlib
import json
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import Machine, cost_rows, cpu_units, decide_with
from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.network.checkpoint import load
from graphopt.policy.registry import SHIPPED

FOLDER = Path(__file__).parent
MODULES = FOLDER / "modules.tar.xz"
EXPECTED = FOLDER / "decisions.json"
MACHINES = tuple(sorted(path.stem for path in (FOLDER / "machines").glob("*.json")))

COSTS = replace(cost_rows.QUICK_CALLS, **cost_rows.COMPILERS["0.10"])
"""Those of the machine on which most was measured, whatever machine runs the test."""


def machine(name: str) -> Machine:
    """A machine description kept beside this file."""
    fields = json.loads((FOLDER / "machines" / f"{name}.json").read_text())
    return Machine(**fields, units=cpu_units(fields["cores"]))


def modules() -> Iterator[tuple[str, bytes]]:
    """(program, module bytes) of every captured module, by name."""
    with lzma.open(MODULES) as packed, tarfile.open(fileobj=packed) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            yield member.name, file.read()


def expected() -> dict[str, dict[str, str]]:
    """Recorded digests: program -> ``fingerprint`` and ``<policy> on <machine>`` -> digest."""
    found: dict[str, dict[str, str]] = json.loads(EXPECTED.read_text())
    return found


def decided(data: bytes) -> dict[str, str]:
    """The digests of one module, in the form of `expected`."""
    out = {}
    for name in MACHINES:
        described = machine(name)
        graph = build_graph(data, described)
        out["fingerprint"] = graph.fingerprint
        with decide_with(COSTS):
            out[f"heuristic on {name}"] = _digest(graph, heuristic(graph))
            out[f"shipped on {name}"] = _digest(graph, shipped(name)(graph))
    return out


@cache
def shipped(machine_name: str):
    """The shipped policy, whose features refer to a machine."""
    policy = load(SHIPPED).decider()
    policy.learned.machine = machine(machine_name)
    return policy


def _digest(graph: Graph, decisions: Decisions | None) -> str:
    """``default``, or a short digest of the decisions with how many nodes differ from XLA's."""
    if decisions is None:
        return "default"
    vectors = [getattr(decisions, field) for field in FIELDS]
    digest = hashlib.sha256(b"".join(vector.tobytes() for vector in vectors)).hexdigest()
    changed = sum(
        vector != getattr(graph.default, field)
        for field, vector in zip(FIELDS, vectors, strict=True)
    )
    return f"{digest[:16]} {int((changed > 0).sum())} nodes"
