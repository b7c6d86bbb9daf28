"""Duels as requests: one task and some pairs of decision vectors, measured by whichever machine answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from graphopt.errors import MeasureError
from graphopt.executing.executor import ExecutorError
from graphopt.executing.request import Answer, Body, Needs, Request
from graphopt.executing.work import Result
from graphopt.hlo import Decisions, Graph
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.learn.collecting.warm import WARM
from graphopt.store import decode_decisions, encode_decisions
from graphopt.tasks.duel import Duel, Look

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


def hold(body: Body, blobs: tuple[bytes, ...]) -> Result:
    """Does the work of a request; stops after `GIVE_UP` fatal vectors in a row."""
    out: list[dict[str, Any]] = []
    try:
        duels = WARM.of(blobs)
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
        WARM.close()
        return {DIED if may_pass(error) else UNMEASURABLE: error.what}, ()
    except BaseException:
        WARM.close()
        raise
    return {"duels": out}, ()
