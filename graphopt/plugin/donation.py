"""Whether a rewrite is worth the donated buffers that it loses, where jaxlib does not keep them."""

from __future__ import annotations

from typing import Final

from graphopt.hlo.emit.release import release
from graphopt.machine import CpuCosts, own_costs
from graphopt.policy.registry import Choice

MARGIN: Final = 2.0
"""How many times what is lost the decisions must save: both are estimates."""


def outweighs_donation(data: bytes, chosen: Choice, costs: CpuCosts | None = None) -> bool:
    """Whether decisions save clearly more than a module loses with its donated buffers.

    Its results then take fresh memory, and parameters that it updates in place are copied first.

    Args:
        data: the module as XLA's hook receives it.
        chosen: the decisions, with what their steps expect to save.
        costs: of the machine; this one's by default.
    """
    costs = costs or own_costs()
    saved_ns = sum(applied.edit.saved_ns for applied in chosen.steps)
    lost = release(data)
    lost_ns = (lost.donated_bytes + lost.copied_bytes) / costs.fresh_bytes_per_ns
    lost_ns += lost.copied_bytes / costs.bytes_per_ns
    return bool(saved_ns > MARGIN * lost_ns)
