"""Duels as requests: one task and some pairs of decision vectors, measured by whichever machine answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.errors import MeasureError
from graphopt.executing.executor import ExecutorError
from graphopt.executing.request import Answer, Body, Needs, Request
from graphopt.executing.work import Result
from graphopt.hlo import Decisions, Graph
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.measure.inputs import load_inputs, save_inputs
from graphopt.store import decode_decisions, encode_decisions
from graphopt.tasks.duel import Duel, Duels, Look

GIVE_UP: Final = 3
"""Vectors in a row that end the child process or hang, after which a task is left."""

FATAL: Final = frozenset({"abort", "hang", "exit", "memory", "garbage"})
"""Statuses of such vectors."""

UNMEASURABLE: Final = "unmeasurable"
"""Key in an answer's body: the task cannot be measured at all, and why."""

DIED: Final = "died"
"""Key in an answer's body: the child process died before the task could be measured, and how."""

WORK: Final = "duels"
"""Kind of work of the requests."""

Inputs = Sequence[np.ndarray[Any, Any]]


def packed_inputs(inputs: Inputs | None) -> tuple[bytes, ...]:
    """Inputs of a task as blobs; none for made-up ones."""
    if inputs is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="graphopt-inputs-") as folder:
        path = Path(folder, "inputs.npz")
        save_inputs(path, inputs)
        return (path.read_bytes(),)


def duels_request(
    graph: Graph,
    data: bytes,
    inputs: tuple[bytes, ...],
    pairs: Sequence[tuple[Decisions, Decisions]],
    needs: Needs,
    label: str,
) -> Request:
    """Asks for duels of one task.

    Args:
        graph: of the task.
        data: its serialised module.
        inputs: of `packed_inputs`.
        pairs: (rival, decisions) of each duel.
        needs: machines whose times count.
        label: for people.
    """
    encoded = [[encode_decisions(graph, one) for one in pair] for pair in pairs]
    return Request(WORK, {"pairs": encoded}, (data, *inputs), needs, label)


def held(answer: Answer) -> list[Duel]:
    """The duels of an answer, in the order of the pairs; fewer if the task was left.

    Raises:
        MeasureError: the task cannot be measured at all.
        ExecutorError: the request itself failed, or the child process died while it prepared the task.
    """
    if not answer.ok or DIED in answer.body:
        raise ExecutorError(
            what=str(answer.body.get(DIED, f"a request {answer.status}: {answer.detail}")),
            where=answer.place or "duels",
            fix="The same command asks again.",
        )
    why = answer.body.get(UNMEASURABLE)
    if why is not None:
        raise MeasureError(what=str(why), where=answer.place, fix="The task is left out.")
    return [_duel(row) for row in answer.body["duels"]]


def _duel(row: dict[str, Any]) -> Duel:
    looks = tuple(Look(**look) for look in row.get("looks", ()))
    return Duel(**{**row, "looks": looks})


class _Warm:
    """The duels of the task that was asked about last: its default need not be compiled again."""

    def __init__(self) -> None:
        self.key: tuple[str | None, tuple[bytes, ...]] = (None, ())
        self.duels: Duels | None = None

    def of(self, blobs: tuple[bytes, ...]) -> Duels:
        """Duels of a task, under the flags of this process."""
        key = os.environ.get("XLA_FLAGS"), blobs
        if self.duels is None or key != self.key:
            self.close()
            data, *packed = blobs
            self.duels = Duels(data, _unpacked(packed[0]) if packed else None)
            self.key = key
        return self.duels

    def close(self) -> None:
        """Ends the child process, if there is one."""
        duels, self.duels = self.duels, None
        if duels is not None:
            duels.close()


_WARM: Final = _Warm()


def close_duels() -> None:
    """Ends the child process that waits for more duels of the last task, in this process."""
    _WARM.close()


def _unpacked(data: bytes) -> Inputs:
    with tempfile.TemporaryDirectory(prefix="graphopt-inputs-") as folder:
        path = Path(folder, "inputs.npz")
        path.write_bytes(data)
        return load_inputs(path)


def hold(body: Body, blobs: tuple[bytes, ...]) -> Result:
    """Does the work of a request; stops after `GIVE_UP` fatal vectors in a row."""
    out: list[dict[str, Any]] = []
    try:
        duels = _WARM.of(blobs)
        failed = 0
        for rival, wanted in body["pairs"]:
            duel = duels.duel(
                decode_decisions(duels.graph, rival), decode_decisions(duels.graph, wanted)
            )
            out.append(asdict(duel) if duel.ok else {"status": duel.status, "detail": duel.detail})
            failed = failed + 1 if duel.status in FATAL else 0
            if failed >= GIVE_UP:
                break
    except MeasureError as error:
        _WARM.close()
        return {DIED if may_pass(error) else UNMEASURABLE: error.what}, ()
    except BaseException:
        _WARM.close()
        raise
    return {"duels": out}, ()
