"""Programs of an evaluation that machines of a cluster measure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from graphopt.executing.executor import own_needs
from graphopt.executing.opening import open_executor
from graphopt.executing.request import Request
from graphopt.store import Store, export_winners, import_winners

WINNERS: Final = "winners.json"
"""How winners travel: as the file that ``graphopt tune --export`` writes."""


def ask_programs(
    executor: str, bodies: Mapping[str, dict[str, Any]], given: bytes | None, store: str | Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and rows of programs, as they are finished.

    Args:
        executor: as for `graphopt.executing.opening.open_executor`.
        bodies: name -> what is asked of it.
        given: exported winners that the machines measure with; None for none.
        store: takes the winners that the machines found.
    """
    blobs = () if given is None else (given,)
    with open_executor(executor) as machines:
        names = {}
        for name, body in bodies.items():
            request = Request("program", body, blobs, own_needs(), name)
            names[request.id] = name
            machines.submit(request)
        for answer in machines.results():
            name = names[answer.id]
            if not answer.ok:
                yield name, {"name": name, "status": f"{answer.status}: {answer.detail}"}
                continue
            for data in answer.blobs:
                take_winners(Store(store), data)
            yield name, {**answer.body["row"], "place": answer.place}


def exported(store: Store) -> bytes:
    """The winners of a store, as a file's content."""
    with tempfile.TemporaryDirectory(prefix="graphopt-winners-") as folder:
        path = Path(folder, WINNERS)
        export_winners(store, path)
        return path.read_bytes()


def take_winners(store: Store, data: bytes) -> int:
    """Takes exported winners that came as bytes; how many."""
    with tempfile.TemporaryDirectory(prefix="graphopt-winners-") as folder:
        path = Path(folder, WINNERS)
        path.write_bytes(data)
        return import_winners(store, path)
