"""``python -m benchmarks.fleet.collecting EXECUTOR OUT``: a collecting run whose duels are pretended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmarks.fleet import pretended
from graphopt.learn.collecting import duel_requests
from graphopt.learn.collecting.collect import CollectPlan
from graphopt.learn.collecting.collect_session import collect_session
from graphopt.learn.collecting.command import FillPlan

PROGRAMS: Final = ("shared_zeros", "scan_grad")
"""Of the set ``fuzz``: small, with a hundred duels each."""


def main(executor: str, out: str) -> int:
    """Exit status of ``graphopt collect``."""
    duel_requests.WORK = "benchmarks.fleet.pretended:hold"
    source = FillPlan(("fuzz",), PROGRAMS, 1e6, None, 0, 4000)
    return collect_session(CollectPlan(source, Path(out), 0.02, executor))


if __name__ == "__main__":
    assert pretended.hold
    sys.exit(main(*sys.argv[1:]))
