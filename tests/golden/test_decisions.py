"""No decision changes by accident: captured modules, two machines, heuristic and shipped policy."""

import pytest

from golden.decisions import decided, expected, modules

PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_decisions_are_the_recorded_ones(part):
    recorded = expected()
    found = {n: decided(data) for i, (n, data) in enumerate(modules()) if i % PARTS == part}
    changed = {
        f"{name}, {what}": (recorded[name].get(what), digest)
        for name, digests in found.items()
        for what, digest in digests.items()
        if recorded[name].get(what) != digest
    }
    assert changed == {}, "python tests/golden/record.py writes what is decided now"


def test_every_recorded_module_is_tested():
    assert [name for name, _ in modules()] == list(expected())


def test_the_record_tells_machines_and_policies_apart():
    recorded = expected().values()
    heuristic = {digests["heuristic on epyc"] for digests in recorded}
    assert len(heuristic) > 0.7 * len(recorded)
    assert any(d["shipped on epyc"] != d["heuristic on epyc"] for d in recorded)
