"""Which costs hold on which kind of machine, and on this one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from graphopt.machine import cost_tables as tables
from graphopt.machine.costs import CpuCosts
from graphopt.machine.kinds import jaxlib_version
from graphopt.machine.machine import Machine, probe
from graphopt.machine.named_facts import with_facts

DEFAULT: Final = CpuCosts()
"""For machines of no known kind."""


@dataclass(frozen=True)
class CostRow:
    """The costs of one kind of machine.

    Attributes:
        processor: how the model name begins.
        simd_bits: width of the widest vector registers.
        jaxlib: a version, or the beginning of versions: "0.10" holds for 0.10.2.
        costs: that hold there.
    """

    processor: str
    simd_bits: int
    jaxlib: str
    costs: CpuCosts

    def holds(self, machine: Machine, jaxlib: str) -> bool:
        """True if the row is about such a machine under such a jaxlib."""
        here = machine.name.startswith(self.processor) and machine.simd_bits == self.simd_bits
        return here and _begins(jaxlib, self.jaxlib)


COMPILERS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "0.10": MappingProxyType(
            {
                "tile_ns": 2.5,
                "narrow_tile_ns": 4.0,
                "tiled_element_ns": 0.1,
                "looped_functions_ns": tables.LOOPED_FUNCTIONS_BEFORE,
                "tiled_complex_ns": MappingProxyType({}),
                "reduced_functions": MappingProxyType({}),
                "shared_batch_flops": 1e9,
            }
        )
    }
)
"""Beginning of versions of jaxlib -> facts of their code generators; the default has those of the newest."""

MASKED_WINDOWS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "window_loop_ns": 0.27,
        "window_native_ns": 0.05,
        "window_long_ns": 0.2,
        "window_line_ns": 0.065,
        "window_extreme": 2.0,
        "apart_loop_ns": 0.27,
        "apart_native_ns": 0.08,
        "shifted_ns": 0.09,
        "shifted_loop_ns": 0.09,
        "shifted_window": 9,
    }
)
"""Windows on machines with AVX-512, whose masked instructions leave out what is outside of the array."""

QUICK_CALLS: Final = CpuCosts(
    **MASKED_WINDOWS,
    cached_bytes_per_ns=80.0,
    known_divisor_ns=0.12,
    known_wide_divisor_ns=0.35,
    call_ns=5_000.0,
    buffer_ns=300.0,
    library_on_caller_ns=1_700.0,
    scatter_loop_ns=2.3,
    scatter_loop_element_ns=0.65,
    narrow_flops_per_ns=58.0,
    odd_columns_flops_per_ns=18.0,
    vector_multiple=16,
    odd_vectors=1.2,
    odd_native_vectors=1.9,
)
"""Machines on which a call of a jitted function takes some microseconds, a value that was just stored is read
at once, and caches are fast."""

PROCESSORS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "AMD EPYC": MappingProxyType({"library_on_caller_ns": 300.0, "opaque_on_caller_ns": 100.0}),
        "Intel(R) Xeon(R)": MappingProxyType({}),
    }
)
"""Beginning of the model names of such machines -> what differs among them."""

CPU_COSTS: Final[tuple[CostRow, ...]] = tuple(
    CostRow(processor, 512, jaxlib, replace(QUICK_CALLS, **facts, **COMPILERS.get(jaxlib, {})))
    for processor, facts in PROCESSORS.items()
    for jaxlib in ("0.10", "0.11", "0.12")
)
"""First match wins."""

_handed_over: dict[str, float] = {}
_fixed: list[CpuCosts] = []


def known_row(machine: Machine, jaxlib: str) -> CostRow | None:
    """The row that holds for a machine, whose values then go before all measured ones."""
    return next((row for row in CPU_COSTS if row.holds(machine, jaxlib)), None)


def is_known(machine: Machine, jaxlib: str) -> bool:
    """True if a row holds for a machine."""
    return known_row(machine, jaxlib) is not None


def here_is_known() -> bool:
    """True if a row holds for this machine."""
    return is_known(probe(), jaxlib_version())


def costs_for(
    machine: Machine, jaxlib: str, measured: Mapping[str, float] | None = None
) -> CpuCosts:
    """The costs that decisions for a machine rest on.

    A known kind has its row, so that decisions there do not depend on a measurement. Other machines have
    the default, with what was measured there in place of its values.

    Args:
        machine: which.
        jaxlib: its version.
        measured: name of a fact (see `graphopt.machine.named_facts`) -> value; only looked at where no
            row holds. Names that this version does not have are left out.

    Raises:
        ConfigError: a measured value is not finite or not positive.
    """
    row = known_row(machine, jaxlib)
    return with_facts(default_costs(jaxlib), measured or {}) if row is None else row.costs


def default_costs(jaxlib: str) -> CpuCosts:
    """The costs on a machine of no known kind, of which nothing was measured."""
    facts = next((f for begin, f in COMPILERS.items() if _begins(jaxlib, begin)), {})
    return replace(DEFAULT, **facts)


def _begins(jaxlib: str, begin: str) -> bool:
    """True if a version is `begin` or one of its releases."""
    return f"{jaxlib}.".startswith(f"{begin}.")


def own_costs() -> CpuCosts:
    """The costs on this machine under the jaxlib of this process."""
    return _own_under(jaxlib_version())


@functools.lru_cache(maxsize=1)
def _own_under(jaxlib: str) -> CpuCosts:
    return _fixed[-1] if _fixed else costs_for(probe(), jaxlib, _handed_over)


def hand_over(measured: Mapping[str, float]) -> None:
    """Makes `own_costs` take what was measured here, where this machine is of no known kind.

    Args:
        measured: name of a fact -> value.

    Raises:
        ConfigError: a value is not finite or not positive; `own_costs` stays as it was.
    """
    with_facts(DEFAULT, measured)
    _handed_over.clear()
    _handed_over.update(measured)
    _own_under.cache_clear()


@contextmanager
def decide_with(costs: CpuCosts) -> Iterator[None]:
    """Makes `own_costs` give certain costs, for decisions that must not depend on this machine.

    Args:
        costs: in use until the block ends, in every thread.
    """
    _fixed.append(costs)
    _own_under.cache_clear()
    try:
        yield
    finally:
        _fixed.pop()
        _own_under.cache_clear()


def measured_key() -> str:
    """Text that changes with what was measured and is in use: part of compilation cache keys."""
    return repr(sorted(handed_over().items()))


def handed_over() -> dict[str, float]:
    """What was measured and is in use on this machine: name of a fact -> value; empty on known kinds."""
    return {} if here_is_known() else dict(_handed_over)
