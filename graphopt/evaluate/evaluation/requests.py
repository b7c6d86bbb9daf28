"""One program of an evaluation as the work of a request."""

from __future__ import annotations

import tempfile
from pathlib import Path

from graphopt.evaluate.evaluation.asking import exported, take_winners
from graphopt.evaluate.evaluation.plan import Plan, evaluate_one
from graphopt.executing.request import Body
from graphopt.executing.work import Result
from graphopt.store import Store


def evaluate_program(body: Body, blobs: tuple[bytes, ...]) -> Result:
    """The row of one program, measured in a child process, and the winners that tuning it found.

    Args:
        body: fields of `Plan`, without its folders, and the ``name`` of the program.
        blobs: exported winners to measure with, if any.
    """
    fields = {key: value for key, value in body.items() if key != "name"}
    with tempfile.TemporaryDirectory(prefix="graphopt-evaluate-") as folder:
        store = Store(Path(folder, "store.sqlite"))
        for data in blobs:
            take_winners(store, data)
        plan = Plan(names=(body["name"],), store=store.path, out=Path(folder), **fields)
        row = evaluate_one(plan, body["name"], lambda message, row: None)
        found = (exported(store),) if plan.budget_s else ()
        store.close()
    return {"row": row}, found
