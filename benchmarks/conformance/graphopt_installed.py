"""A pytest plugin that runs a library's own tests with graphopt installed.

    python -m pytest -p benchmarks.conformance.graphopt_installed path/to/the/library/tests

``GRAPHOPT_DISABLE=1`` gives the same run without it, to compare with. Where ``GRAPHOPT_TEST_LOG`` names a
file, a line of JSON per test is written there as soon as the test has ended: ``test``, ``outcome`` (passed,
failed, skipped), ``cpu_s`` (processor time of the process, seconds, over set-up, call and tear-down). Tests
that have a line there already do not run again.

Nothing is stored, unless ``GRAPHOPT_RECORD`` asks for modules: these go to ``GRAPHOPT_STORE``. Tests then run
in an order that says nothing of them, so that those that have run when time is over are like the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import graphopt

LOG = os.environ.get("GRAPHOPT_TEST_LOG")
RECORDING = bool(os.environ.get("GRAPHOPT_RECORD"))

jax.config.update("jax_platforms", "cpu")
graphopt.install(store=None if RECORDING else False)
outcomes: dict[str, str] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that have ended in an earlier run; shuffles the others for a recording."""
    if LOG and Path(LOG).exists():
        rows = [json.loads(line) for line in Path(LOG).read_text().splitlines()]
        ended = {row["test"] for row in rows}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ended])
        items[:] = [item for item in items if item.nodeid not in ended]
    if RECORDING:
        items.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remembers the worst of a test's three phases."""
    known = outcomes.get(report.nodeid, "passed")
    outcomes[report.nodeid] = (
        known if known == "failed" or report.outcome == "passed" else report.outcome
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Writes a test's outcome and time once it has ended."""
    start = time.process_time()
    yield
    if LOG:
        row = {
            "test": item.nodeid,
            "outcome": outcomes.get(item.nodeid, "failed"),
            "cpu_s": round(time.process_time() - start, 6),
        }
        with open(LOG, "a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says at the end what graphopt saw and rewrote."""
    terminalreporter.write_line(str(graphopt.report()))
