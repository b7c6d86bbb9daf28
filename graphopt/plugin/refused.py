"""The net under a rewrite: where XLA refuses a module of ours, the same compile is repeated by default."""

from __future__ import annotations

import logging
from dataclasses import replace

from graphopt.errors import message
from graphopt.outcomes import Outcome
from graphopt.plugin.state import state

_logger = logging.getLogger("graphopt")


def begin() -> int:
    """Before a compile: what tells its rewritten modules from earlier ones."""
    installed = state.installed
    return 0 if installed is None else installed.memory.rewritten()


def withdraw(name: str, begun: int, error: Exception) -> bool:
    """After a compile that failed: takes our answers for it back.

    Args:
        name: of the module.
        begun: what `begin` returned.
        error: what XLA raised.

    Returns:
        Whether there was such an answer, so that the compile is worth repeating: XLA's default stands then.
    """
    installed = state.installed
    if installed is None:
        return False
    found = installed.memory.rewritten_since(begun, name)
    for rewritten in found:
        lines = message(error).splitlines()
        reason = f"XLA refused the rewritten module: {lines[0][:300]}"
        record = replace(rewritten.record, outcome=Outcome.FELL_BACK, reason=reason)
        installed.memory.refuse(rewritten.digests, record)
        state.ledger.withdraw(rewritten.record)
        _logger.warning("%s: %s; it is compiled again by XLA's default", name, reason)
    return bool(found)
