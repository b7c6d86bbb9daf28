"""The capabilities of the jaxlib that is installed: from the table, else from the store, else tried."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Sequence
from typing import Final

from graphopt.errors import GraphOptError, StoreError
from graphopt.measure.capabilities.table import KNOWN, PROBES, TABLE, Capabilities
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.store import Store
from graphopt.store.capabilities import get_capabilities, put_capabilities

TIMEOUT_S: Final = 120.0
"""Longest time of one probe; all together take some seconds."""

WORKER: Final = ("-m", "graphopt.measure.capabilities.worker")

_logger = logging.getLogger("graphopt")
_lock = threading.Lock()
_tried: dict[str, Capabilities] = {}


def own_capabilities(store: Store | None = None) -> Capabilities:
    """What holds under the installed jaxlib.

    A version without a row of its own is tried in a child process, once per store; the result is kept there.

    Args:
        store: where results are kept; None keeps them for this process only.
    """
    import jaxlib.version

    version = str(jaxlib.version.__version__)
    if version in KNOWN:
        return Capabilities(version, KNOWN[version], known=True)
    with _lock:
        found = _tried.get(version) or _stored(store, version)
        if found is None:
            found = Capabilities(version, try_out(), known=False)
            _store(store, found)
        _tried[version] = found
    return found


def try_out(worker: Sequence[str] = WORKER) -> frozenset[str]:
    """Runs all probes in a child process; what fails, hangs or ends the child does not hold.

    Args:
        worker: arguments of the Python that runs them.
    """
    holding = set()
    child: Child | None = None
    for row in TABLE:
        try:
            child = child or Child(worker, "capabilities")
            found = json.loads(child.ask(json.dumps({"probe": row.name}), TIMEOUT_S))
        except (ChildFailure, ValueError) as error:
            if child is not None:
                child.close()
            child, found = None, {"holds": False, "detail": str(error)}
        if found["holds"]:
            holding.add(row.name)
        else:
            _logger.info("capability %s does not hold: %s", row.name, found["detail"])
    if child is not None:
        child.close()
    return frozenset(holding)


def _stored(store: Store | None, version: str) -> Capabilities | None:
    if store is None or not store.exists():
        return None
    with contextlib.suppress(GraphOptError):
        holding = get_capabilities(store, version, PROBES)
        if holding is not None:
            return Capabilities(version, holding, known=False)
    return None


def _store(store: Store | None, found: Capabilities) -> None:
    if store is None:
        return
    names = {row.name: row.name in found.holding for row in TABLE}
    with contextlib.suppress(StoreError):  # it is tried again next time
        put_capabilities(store, found.jaxlib, PROBES, names)
