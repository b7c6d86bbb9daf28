"""Which costs hold on which kind of machine, and on this one."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from graphopt.machine.costs import CpuCosts
from graphopt.machine.machine import Machine, probe

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
        return here and f"{jaxlib}.".startswith(f"{self.jaxlib}.")


CPU_COSTS: Final[tuple[CostRow, ...]] = (
    CostRow("AMD EPYC", 512, "0.10", CpuCosts()),
    CostRow("Intel(R) Xeon(R)", 512, "0.10", CpuCosts()),
)
"""First match wins."""

_handed_over: dict[str, float] = {}


def is_known(machine: Machine, jaxlib: str) -> bool:
    """True if a row holds for a machine, whose values then go before all measured ones."""
    return any(row.holds(machine, jaxlib) for row in CPU_COSTS)


def costs_for(
    machine: Machine, jaxlib: str, measured: Mapping[str, float] | None = None
) -> CpuCosts:
    """The costs that decisions for a machine rest on.

    A known kind has its row, so that decisions there do not depend on a measurement. Other machines have
    the default, with what was measured there in place of its values.

    Args:
        machine: which.
        jaxlib: its version.
        measured: field of `CpuCosts` -> value; only looked at where no row holds.

    Raises:
        ConfigError: a measured value is not finite or not positive.
    """
    found = next((row.costs for row in CPU_COSTS if row.holds(machine, jaxlib)), None)
    return _with(measured or {}) if found is None else found


@functools.lru_cache(maxsize=1)
def own_costs() -> CpuCosts:
    """The costs on this machine, looked up once."""
    import jaxlib.version

    return costs_for(probe(), str(jaxlib.version.__version__), _handed_over)


def hand_over(measured: Mapping[str, float]) -> None:
    """Makes `own_costs` take what was measured here, where this machine is of no known kind.

    Args:
        measured: field of `CpuCosts` -> value.

    Raises:
        ConfigError: a value is not finite or not positive; `own_costs` stays as it was.
    """
    _with(measured)
    _handed_over.clear()
    _handed_over.update(measured)
    own_costs.cache_clear()


def costs_digest() -> str:
    """Text that is equal for equal `own_costs` of one version of graphopt."""
    return hashlib.sha256(repr(sorted(_handed_over.items())).encode()).hexdigest()[:8]


def _with(measured: Mapping[str, float]) -> CpuCosts:
    """The default with measured values; names of fields that this version does not have are left out."""
    names = {item.name for item in fields(CpuCosts)}
    values: dict[str, Any] = {name: value for name, value in measured.items() if name in names}
    return replace(DEFAULT, **values)
