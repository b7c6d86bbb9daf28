"""All programs that are measured beside jax 0.4.31, by suite and name."""

from __future__ import annotations

from typing import Final

from benchmarks.reported.cartpole import CARTPOLE
from benchmarks.reported.programs import REPORTED, Reported
from benchmarks.trackers.programs import REPORTS
from benchmarks.unseen.programs import WORKLOADS, WORKLOADS64

PROGRAMS: dict[str, Reported] = {program.name: program for program in (*REPORTED, *CARTPOLE)}
"""Program name -> program."""

_UNSEEN: dict[str, Reported] = {
    name: Reported(name, "benchmarks.unseen", build, x64)
    for programs, x64 in ((WORKLOADS, False), (WORKLOADS64, True))
    for name, build in programs.items()
}

_TRACKERS: dict[str, Reported] = {program.name: program for program in REPORTS}

SUITES: Final = {"reported": PROGRAMS, "unseen": _UNSEEN, "trackers": _TRACKERS}
"""Suite -> program name -> program."""
