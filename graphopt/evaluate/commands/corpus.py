"""``graphopt corpus``: what is in the corpus, its captures, and whether it is sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from graphopt.corpus.bulk import Collection, collect
from graphopt.corpus.entries import Entry, load_corpus
from graphopt.corpus.split import find_overlaps
from graphopt.errors import WorkloadError
from graphopt.evaluate.commands.capture import describe
from graphopt.evaluate.fuzzing.corpus import Verdict, verify_programs
from graphopt.progress import Show, steps, waiting


@dataclass(frozen=True)
class Query:
    """Which programs, and how to print.

    Attributes:
        names: programs; all if empty.
        split: ``train``, ``validation`` or ``held-out``; empty for all.
        directory: where captures are kept; None for the default.
        as_json: print JSON instead of tables.
        markdown: print tables as Markdown.
        workers: child processes at once.
    """

    names: tuple[str, ...] = ()
    split: str = ""
    directory: Path | None = None
    as_json: bool = False
    markdown: bool = False
    workers: int = 2

    def entries(self) -> list[Entry]:
        """The programs.

        Raises:
            WorkloadError: a name or the split does not exist, or nothing is left.
        """
        entries = load_corpus(self.split or None, self.directory, self.names)
        if not entries:
            raise WorkloadError(
                what="no program is left", where=f"split {self.split}", fix="Drop --split."
            )
        return entries


def run_corpus(action: str, query: Query, console: Console | None = None) -> int:
    """Runs one of `ACTIONS`; returns the exit status.

    Raises:
        WorkloadError: there is no such action, split or program.
    """
    console = console or Console(width=None if Console().is_terminal else 140)
    if action not in ACTIONS:
        raise WorkloadError(
            what=f"no action {action!r}", where="graphopt corpus", fix=f"Use {', '.join(ACTIONS)}."
        )
    return ACTIONS[action](query, console)


def _print_json(console: Console, value: Any) -> None:
    console.print(json.dumps(value, indent=1), soft_wrap=True, markup=False, highlight=False)


def _facts(entry: Entry) -> dict[str, Any]:
    """All that is known about a program; what only a capture tells is None without one."""
    program, record = entry.program, entry.record
    return {
        "name": entry.name,
        "family": entry.family,
        "split": entry.split,
        "gradient": program.gradient,
        "loops": program.loops,
        "chaotic": program.chaotic,
        "nodes": sum(record.nodes) if record else None,
        "argument_bytes": record.argument_bytes if record else None,
        "capture_s": record.seconds if record else None,
        "workload": entry.workload,
        "description": program.description,
    }


def _print_table(console: Console, query: Query, columns: Sequence[str], rows: list[Any]) -> None:
    """Rows of texts: as a table, or as Markdown."""
    if query.markdown:
        lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
        lines += [" | ".join(row) for row in rows]
        text = "\n".join(f"| {line} |" for line in lines)
        console.print(text, soft_wrap=True, markup=False, highlight=False)
        return
    table = Table()
    for column in columns:
        number = column in ("programs", "nodes", "gradients", "loops", "captured")
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _list(query: Query, console: Console) -> int:
    facts = [_facts(entry) for entry in query.entries()]
    if query.as_json:
        _print_json(console, facts)
        return 0
    flags = ("gradient", "loops", "chaotic")
    rows = [
        (
            str(f["name"]), str(f["family"]), str(f["split"]),
            " ".join(flag for flag in flags if f[flag]),
            "-" if f["nodes"] is None else str(f["nodes"]), str(f["description"]),
        )
        for f in facts
    ]  # fmt: skip
    _print_table(console, query, ("program", "family", "split", "kind", "nodes", "what"), rows)
    return 0


def _show(query: Query, console: Console) -> int:
    if not query.names:
        raise WorkloadError(
            what="no program is named", where="graphopt corpus show", fix="Name one."
        )
    for entry in query.entries():
        with waiting(console, f"{entry.name}: compiling, up to the hook"):
            graphs = entry.graphs
        facts = {**_facts(entry), "graphs": [describe(graph) for graph in graphs]}
        if query.as_json:
            _print_json(console, facts)
            continue
        console.print(f"{entry.name}: {entry.program.description}", markup=False, highlight=False)
        for key in ("family", "split", "gradient", "loops", "chaotic", "argument_bytes"):
            console.print(f"  {key}: {facts[key]}", highlight=False)
        for text in facts["graphs"]:
            console.print(text, markup=False, highlight=False)
    return 0


def family_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """One row per family: counts, and the sizes of those programs that are captured."""
    rows = []
    for family in sorted({(entry.split, entry.family) for entry in entries}):
        members = [entry for entry in entries if (entry.split, entry.family) == family]
        sizes = [sum(record.nodes) for entry in members if (record := entry.record)]
        rows.append(
            {
                "family": family[1],
                "split": family[0],
                "programs": len(members),
                "gradients": sum(entry.program.gradient for entry in members),
                "loops": sum(entry.program.loops for entry in members),
                "captured": len(sizes),
                "nodes_min": min(sizes, default=None),
                "nodes_median": median(sizes) if sizes else None,
                "nodes_max": max(sizes, default=None),
                "nodes_total": sum(sizes),
            }
        )
    return rows


def _stats(query: Query, console: Console) -> int:
    entries = query.entries()
    families = family_rows(entries)
    if query.as_json:
        _print_json(console, families)
        return 0
    rows = []
    for f in families:
        sizes = [f["nodes_min"], f["nodes_median"], f["nodes_max"]]
        nodes = " / ".join("-" if size is None else f"{size:g}" for size in sizes)
        counts = [str(f[key]) for key in ("programs", "gradients", "loops", "captured")]
        rows.append((f["family"], f["split"], *counts, nodes))
    columns = ("family", "split", "programs", "gradients", "loops", "captured", "nodes")
    _print_table(console, query, columns, rows)
    splits = sorted({entry.split for entry in entries})
    counts = [f"{sum(e.split == split for e in entries)} {split}" for split in splits]
    total = sum(f["nodes_total"] for f in families)
    console.print(
        f"{len(entries)} programs in {len(families)} families ({', '.join(counts)}), "
        f"{total} nodes in those captured; nodes: smallest / median / largest",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    return 0


def _told(query: Query, console: Console) -> Console:
    """Where progress is told: JSON stays alone in the output."""
    return Console(stderr=True) if query.as_json else console


def _captured(
    query: Query, console: Console, entries: Sequence[Entry], verbose: bool
) -> Collection:
    """Captures what is missing, with progress; what is captured before an interrupt stays."""
    missing = sum(not entry.is_captured for entry in entries)
    finished = 0
    with steps(_told(query, console), missing, "programs captured") as show:

        def tell(name: str, failure: str) -> None:
            nonlocal finished
            finished += 1
            show(f"capturing, last {name}", finished)
            if verbose and not query.as_json:
                console.print(f"{name}: {failure or 'captured'}", markup=False, highlight=False)

        return collect(entries, workers=query.workers, tell=tell)


def _capture(query: Query, console: Console) -> int:
    done = _captured(query, console, query.entries(), verbose=True)
    if query.as_json:
        _print_json(console, asdict(done))
    else:
        console.print(str(done), markup=False, highlight=False)
    return 1 if done.failures else 0


def _check(query: Query, console: Console) -> int:
    """Captures what is missing, then compares all modules with each other."""
    entries = query.entries()
    done = _captured(query, console, entries, verbose=False)
    sound = [entry for entry in entries if entry.name not in done.failures]
    with steps(_told(query, console), len(sound), "programs compared") as show:
        overlaps = find_overlaps(_each(sound, show))
    leaks = [overlap for overlap in overlaps if overlap.leaks]
    if query.as_json:
        rows = [{**asdict(overlap), "leaks": overlap.leaks} for overlap in overlaps]
        _print_json(console, {"overlaps": rows, "failures": done.failures})
    else:
        for overlap in overlaps:
            console.print(str(overlap), markup=False, highlight=False)
        for name, why in done.failures.items():
            console.print(f"{name}: not captured: {why}", markup=False, highlight=False)
        console.print(
            f"{len(entries)} programs, {len(leaks)} modules in two splits, "
            f"{len(overlaps) - len(leaks)} modules twice in one split",
            highlight=False,
        )
    return 1 if leaks or done.failures else 0


def _each(entries: Iterable[Entry], show: Show) -> Iterator[Entry]:
    """The programs, each shown while it is looked at."""
    for number, entry in enumerate(entries):
        show(f"comparing {entry.name}", number)
        yield entry


def _verify(query: Query, console: Console) -> int:
    """Verifies; the verdicts reached before an interrupt are printed as well."""
    names = [entry.name for entry in query.entries() if not entry.workload]
    verdicts: list[Verdict] = []
    try:
        with steps(_told(query, console), len(names), "programs verified") as show:

            def tell(verdict: Verdict) -> None:
                verdicts.append(verdict)
                show(f"verifying, last {verdict.program}", len({v.program for v in verdicts}))
                if not query.as_json:
                    _print_verdict(verdict, console)

            verify_programs("corpus", names, workers=query.workers, tell=tell)
    except KeyboardInterrupt:
        _sum_up(query, console, verdicts)
        raise
    return _sum_up(query, console, verdicts)


def _print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints one verdict as a line."""
    text = f"{verdict.program:32s} {verdict.policy:12s} {verdict.status:6s}"
    if verdict.policy and verdict.status != "error":
        times = f"{verdict.default_ms:9.3f} -> {verdict.policy_ms:9.3f} ms"
        text += f" {verdict.relative:8.1e} {times} {verdict.detail}"
    else:
        text += f" {verdict.detail}"
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def _sum_up(query: Query, console: Console, verdicts: Sequence[Verdict]) -> int:
    """Prints how many verdicts there are, or all of them as JSON; 1 if a program failed."""
    failed = [verdict for verdict in verdicts if not verdict.fine]
    if query.as_json:
        _print_json(console, [asdict(verdict) for verdict in verdicts])
    else:
        console.print(
            f"{len({v.program for v in verdicts})} programs, {len(verdicts)} rewrites, "
            f"{len(failed)} failed or different",
            highlight=False,
        )
    return 1 if failed else 0


ACTIONS: Final[dict[str, Callable[[Query, Console], int]]] = {
    "list": _list,
    "show": _show,
    "stats": _stats,
    "capture": _capture,
    "check": _check,
    "verify": _verify,
}
"""Actions of ``graphopt corpus``; each takes a query and a console and returns the exit status."""
