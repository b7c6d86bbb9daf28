"""Programs over more third-party JAX libraries, by name.

``WORKLOADS`` and ``LATER`` run in single precision; ``WORKLOADS_X64`` and ``LATER_X64`` need
``JAX_ENABLE_X64=1``. A builder returns ``(fn, args)``: ``fn`` is pure and jittable, ``args`` are concrete
pytrees of arrays made from fixed seeds. Every builder imports its library itself, so that a missing library
breaks only the programs that use it.
"""

from __future__ import annotations

from benchmarks.third_party.common import Builder

from . import (
    astronomy_programs,
    control_programs,
    evolution_programs,
    fluid_programs,
    game_programs,
    imaging_programs,
    inference_programs,
    network_programs,
    neuroscience_programs,
    numerics_programs,
    probability_programs,
    quantum_programs,
    simulation_programs,
    training_programs,
)

WORKLOADS: dict[str, Builder] = {
    **probability_programs.WORKLOADS,
    **inference_programs.WORKLOADS,
    **astronomy_programs.WORKLOADS,
    **quantum_programs.WORKLOADS,
    **numerics_programs.WORKLOADS,
    **imaging_programs.WORKLOADS,
    **fluid_programs.WORKLOADS,
    **evolution_programs.WORKLOADS,
    **network_programs.WORKLOADS,
    **control_programs.WORKLOADS,
    **neuroscience_programs.WORKLOADS,
}
"""Programs in single precision."""

WORKLOADS_X64: dict[str, Builder] = {
    **probability_programs.WORKLOADS_X64,
    **inference_programs.WORKLOADS_X64,
    **astronomy_programs.WORKLOADS_X64,
    **quantum_programs.WORKLOADS_X64,
    **numerics_programs.WORKLOADS_X64,
    **fluid_programs.WORKLOADS_X64,
    **control_programs.WORKLOADS_X64,
}
"""Programs that need JAX_ENABLE_X64=1."""

LATER: dict[str, Builder] = {
    **game_programs.WORKLOADS,
    **simulation_programs.WORKLOADS,
    **training_programs.WORKLOADS,
}
"""Programs in single precision that were measured as they came."""

LATER_X64: dict[str, Builder] = simulation_programs.WORKLOADS_X64
"""The same that need JAX_ENABLE_X64=1."""

CHAOTIC: frozenset[str] = frozenset()
"""Programs that amplify rounding, whose outputs are compared by a looser criterion."""
