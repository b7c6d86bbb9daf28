"""Small programs full of loops, as users write and report them, by name.

``WORKLOADS`` run in single precision; ``WORKLOADS64`` need ``JAX_ENABLE_X64=1``. A builder returns
``(fn, args)``: ``fn`` is pure and jittable, ``args`` are arrays made from fixed seeds.
"""

from __future__ import annotations

from benchmarks.third_party.common import Builder

from . import (
    chain_programs,
    gradient_programs,
    physics_programs,
    search_programs,
    solver_programs,
)

WORKLOADS: dict[str, Builder] = {
    **gradient_programs.WORKLOADS,
    **chain_programs.WORKLOADS,
    **search_programs.WORKLOADS,
}
"""Programs in single precision."""

WORKLOADS64: dict[str, Builder] = {
    **gradient_programs.WORKLOADS64,
    **physics_programs.WORKLOADS64,
    **solver_programs.WORKLOADS64,
}
"""Programs that need JAX_ENABLE_X64=1."""
