"""Work that only pretends to measure: it takes its time; the answer depends on the question alone."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from math import log
from typing import Any, Final

from graphopt.executing.request import Body
from graphopt.hlo import build_graph
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.store import Store
from graphopt.store.engines.places import VARIABLE
from graphopt.store.winners import put_evaluation

CHILD: Final = """
import sys, time
for line in sys.stdin:
    time.sleep(float(line))
    print("done", flush=True)
"""

_children: list[Child] = []
_stores: list[Store] = []


def wait(body: Body, blobs: tuple[bytes, ...]) -> tuple[Body, tuple[bytes, ...]]:
    """Takes ``seconds``; for throughput."""
    time.sleep(body["seconds"])
    return {}, ()


def hold(body: Body, blobs: tuple[bytes, ...]) -> tuple[Body, tuple[bytes, ...]]:
    """Duels in place of `graphopt.learn.collecting.duel_requests.hold`, each 0.1 s of a child process.

    Where the environment names a store, a row of each is written there, as tuning does.
    """
    rows = []
    for pair in body["pairs"]:
        _ask_child()
        rows.append(_duel(pair))
        if os.environ.get(VARIABLE):
            _written(_task(blobs[0]), pair, rows[-1])
    return {"duels": rows}, ()


def _ask_child() -> None:
    if not _children:
        _children.append(Child(["-c", CHILD], "pretended duels"))
    try:
        _children[0].ask("0.1", 60.0)
    except ChildFailure:
        _children.clear()  # the next request has another one
        raise


@functools.lru_cache(maxsize=8)
def _task(module: bytes) -> str:
    """What names a task: two captures of one program need not have equal bytes."""
    return build_graph(module, allow_donation=True).fingerprint


def _written(task: str, pair: list[str], duel: dict[str, Any]) -> None:
    if not _stores:
        _stores.append(Store())
    ratio = duel["looks"][0]["log_ratio"]
    put_evaluation(_stores[0], task, json.dumps(pair), ratio, "ok", "pretended")


def _duel(pair: list[str]) -> dict[str, Any]:
    digest = hashlib.sha256("".join(pair).encode()).digest()
    gain = log(0.8 + digest[0] / 512)
    look = {"log_ratio": gain, "low": gain - 0.01, "high": gain + 0.01, "pairs": 5}
    return {
        "status": "ok", "looks": [look, look], "seconds": 1e-3, "rival_s": 1e-3,
        "compile_s": 0.1, "error": 0.0, "detail": "",
    }  # fmt: skip
