"""Readers of what benchmarks print: lines of fuzzing, Markdown tables."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.results.found import Found, Rows

FUZZED: Final = re.compile(
    r"(?P<trials>\d+) trials on (?P<programs>\d+) programs in [\d.]+ s: (?P<ok>\d+) ok, "
    r"(?P<wrong>\d+) wrong, (?P<compile>\d+) compile error, "
    r"(?P<run>\d+) run error, (?P<abort>\d+) abort, (?P<hang>\d+) hang"
    r"(?:, (?P<exit>\d+) exit)?"
)


def fuzzing(text: str) -> Found:
    """Lines of ``graphopt fuzz``."""
    rows: Rows = []
    for found in FUZZED.finditer(text):
        counts = {key: int(value or 0) for key, value in found.groupdict().items()}
        failed = sum(counts.pop(key) for key in ("compile", "run", "abort", "hang", "exit"))
        rows.append({**counts, "failed": failed})
    return Found("fuzzing", rows, "graphopt fuzz")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _printed(text: str) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the first Markdown table in a text."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.fullmatch(r"\|[ :|-]+\|", line.strip()))
    body = []
    for line in lines[start + 1 :]:
        if line.strip().startswith("|"):
            body.append(_cells(line))
        elif body and not line.strip():
            break
    headings = _cells(lines[start - 1])
    return headings, [cells for cells in body if len(cells) == len(headings)]


def explained(text: str) -> Found:
    """What ``benchmarks.explained`` prints."""
    rows: Rows = []
    for name, shown, installed, error in _printed(text)[1]:
        if shown.endswith("x"):
            ratios = {"explained": float(shown[:-1]), "speedup": float(installed[:-1])}
            rows.append({"name": name, **ratios, "error": float(error.rstrip("%")) / 100})
    command = "python -m benchmarks.explained"
    return Found("explained", rows, command)


def recurrences(text: str) -> Found:
    """What ``benchmarks.recurrences`` prints."""
    keys = ("default_ms", "without_ms", "parts_ms", "speedup", "gain", "error")
    rows: Rows = [
        {"name": name, **{k: float(c.rstrip("x")) for k, c in zip(keys, cells, strict=True)}}
        for name, *cells in _printed(text)[1]
    ]
    return Found("recurrences", rows, "python -m benchmarks.recurrences")


def libraries(text: str) -> Found:
    """What ``benchmarks.conformance.libraries`` prints."""
    rows: Rows = []
    for cells in _printed(text)[1]:
        name, tests, passed, failed, without, ours, cpu_without, cpu_with, ratio, modules = cells
        counted = re.findall(r"(\d+) (modules seen|rewritten)", modules)
        found = {word: int(count) for count, word in counted}
        rows.append(
            {
                "name": name,
                "tests": int(tests.split()[0]),
                "passed": int(passed),
                "failed": int(failed),
                "failed_without": int(without),
                "ours": int(ours),
                "cpu_without_s": float(cpu_without),
                "cpu_with_s": float(cpu_with),
                "ratio": float(ratio),
                "seen": found.get("modules seen", 0),
                "rewritten": found.get("rewritten", 0),
                "stopped": "stopped" in tests,
            }
        )
    return Found("libraries", rows, "python -m benchmarks.conformance.libraries")


def table(text: str) -> Found:
    """Any table: its cells as they stand."""
    headings, body = _printed(text)
    rows = [{"name": cells[0], **dict(zip(headings[1:], cells[1:], strict=True))} for cells in body]
    return Found("table", rows, "")
