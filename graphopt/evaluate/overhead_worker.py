"""A process that offers modules to an installed graphopt, for `graphopt.evaluate.bench_overhead`.

Reads ``{"store": path, "modules": [paths]}`` from standard input; writes ``[[seconds, outcome], ...]``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from graphopt.outcomes import ModuleRecord
from graphopt.plugin import install, report, uninstall
from graphopt.plugin.modules import handle


def offer(store: str, modules: list[bytes]) -> list[tuple[float, str]]:
    """Seconds and outcome of each module in the hook, as a compile would call it.

    Args:
        store: path; what an earlier process decided is found there.
        modules: serialised, as XLA hands them to the hook.
    """
    os.environ["GRAPHOPT_REMEMBER"] = "1"
    install(store=store)
    out = []
    for data in modules:
        start = time.perf_counter()
        handle(data)
        seconds = time.perf_counter() - start
        out.append((seconds, _outcome(report().records[-1])))
    uninstall()
    return out


def _outcome(record: ModuleRecord) -> str:
    return f"{record.outcome}, remembered" if record.recalled else str(record.outcome)


def main() -> None:
    """Answers once."""
    asked = json.load(sys.stdin)
    modules = [Path(path).read_bytes() for path in asked["modules"]]
    json.dump(offer(asked["store"], modules), sys.stdout)


if __name__ == "__main__":
    main()
