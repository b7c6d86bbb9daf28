"""All programs of the suite by name."""

from __future__ import annotations

from benchmarks.reported.cartpole import CARTPOLE
from benchmarks.reported.programs import REPORTED, Reported

PROGRAMS: dict[str, Reported] = {program.name: program for program in (*REPORTED, *CARTPOLE)}
"""Program name -> program."""
