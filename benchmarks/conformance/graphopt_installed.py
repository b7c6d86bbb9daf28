"""A pytest plugin that runs a library's own tests with graphopt installed.

    python -m pytest -p benchmarks.conformance.graphopt_installed path/to/the/library/tests

``GRAPHOPT_DISABLE=1`` gives the same run without it, to compare failures with.
"""

from __future__ import annotations

import jax

import graphopt

jax.config.update("jax_platforms", "cpu")
graphopt.install(store=False)


def pytest_terminal_summary(terminalreporter: object) -> None:
    """Says at the end what graphopt saw and rewrote."""
    terminalreporter.write_line(str(graphopt.report()))  # type: ignore[attr-defined]
