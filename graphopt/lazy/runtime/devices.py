"""Graphs over several devices: which devices, and the plan of each graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from graphopt.errors import GraphOptError
from graphopt.lazy.core import metrics
from graphopt.lazy.record import operands
from graphopt.lazy.runtime import compiling, optimizer
from graphopt.lazy.runtime.cache import Entry

if TYPE_CHECKING:
    from graphopt.devices.plan import PlacementPolicy


@dataclass
class _State:
    devices: tuple[Any, ...] = ()
    policy: Any = "search"
    options: dict[str, Any] = field(default_factory=dict)


_state: Final = _State()


def set_devices(
    devices: Sequence[Any] | None = None,
    policy: str | PlacementPolicy | None = "search",
    **options: Any,
) -> None:
    """Lets compiled graphs run over several devices where that is faster; see `graphopt.place`.

    It concerns graphs of tensors on the first device, which keeps the results. Each is planned at its
    first compiled run, on its real inputs; where no gain is found it stays on its device. Graphs that ran
    before are compiled and planned anew.

    Args:
        devices: jax devices or names such as ``"cpu:1"``, the first one is home; None or a single one:
            every graph runs on the device of its tensors.
        policy: as for `graphopt.place`.
        **options: fields of `graphopt.devices.Options`, such as ``measure`` and ``budget_s``.

    Raises:
        LazyValueError: there is no such device.
        ConfigError: one is given twice, or there is no such option.
    """
    from graphopt.devices import place

    chosen = tuple(operands.as_device(d) for d in devices or ())
    if chosen:
        place(lambda x: x, chosen, policy, **options)  # refuses what it does not take
    _state.devices = chosen if len(chosen) > 1 else ()
    _state.policy, _state.options = policy, options
    optimizer.renew()


def several() -> bool:
    """Whether graphs may run over several devices."""
    return bool(_state.devices)


def try_placing(entry: Entry, arrays: list[Any], packs: list[Any]) -> None:
    """Plans a compiled graph; afterwards its executable is the placed one if that gains."""
    entry.placed = "one device"
    if not _state.devices or entry.plan.device is not _state.devices[0]:
        return
    from graphopt.devices import place

    try:
        placed = place(
            compiling.flat_function(entry), _state.devices, _state.policy, **_state.options
        )
        placed(*arrays, *packs)
    except GraphOptError as error:
        metrics.fallback(f"set_devices: {error.what}")
        return
    plan = placed.plans[-1] if placed.plans else None
    if plan is None:
        return
    entry.placed = str(plan)
    if plan.program is not None:
        entry.executable = placed
        metrics.outcome("placed")
