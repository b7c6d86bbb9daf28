"""Long benchmarks say how far they are, and keep what they have after Ctrl-C."""

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.progress import label

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

SHORT = {
    "__main__.py": "calls another one",
    "conformance/worker.py": "a child that answers questions",
    "fleet/__main__.py": "calls another one",
    "fleet/collecting.py": "a child that is killed",
    "pages.py": "two seconds",
    "reported/worker.py": "a child that answers questions",
    "results/__main__.py": "two seconds",
    "sealed/__main__.py": "calls another one",
    "site.py": "five seconds at most",
}
"""Modules that show nothing, and why."""

SCRIPT = """
import sys, time
from rich.console import Console
from benchmarks.progress import counted, ended

def main():
    done = []
    with counted(range(100), "programs measured", Console()) as rest:
        for number in rest:
            if number == int(sys.argv[1]):
                print("waiting", flush=True)
                time.sleep(60)
            done.append(number)
    print("summary of", len(done), flush=True)

sys.exit(ended(main))
"""


def run_and_interrupt(after: int) -> tuple[str, int]:
    """Output and status of a benchmark that gets Ctrl-C in the midst of an item."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(after)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=BENCHMARKS.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    text = ""
    while "waiting" not in text:
        text += process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    return text + process.communicate(timeout=60)[0], process.returncode


def test_after_an_interrupt_what_there_is_is_shown():
    text, status = run_and_interrupt(3)
    assert "interrupted: 3 of 100 programs measured" in text
    assert "summary of 3" in text and status == 130


def test_where_nothing_is_finished_there_is_no_summary():
    text, status = run_and_interrupt(0)
    assert "interrupted: 0 of 100" in text and "summary" not in text and status == 130


def test_labels_are_short():
    assert label(("tanh", len, 3)) == "tanh, 3"
    assert len(label("x" * 200)) < 100


def entry_points() -> list[Path]:
    """Modules that are run, and those that ``python -m benchmarks`` calls."""
    tree = ast.parse((BENCHMARKS / "__main__.py").read_text())
    named = re.findall(r"'(benchmarks[\w.]*):", ast.unparse(tree))
    called = {BENCHMARKS.parent / f"{name.replace('.', '/')}.py" for name in named}
    run = {p for p in BENCHMARKS.rglob("*.py") if '__name__ == "__main__"' in p.read_text()}
    return sorted(called | run)


@pytest.mark.parametrize("path", entry_points(), ids=lambda path: str(path.relative_to(BENCHMARKS)))
def test_every_benchmark_shows_how_far_it_is(path):
    text = path.read_text()
    shows = any(f"{call}(" in text for call in ("counted", "waiting", "steps"))
    assert shows != (str(path.relative_to(BENCHMARKS)) in SHORT)
    if shows and '__name__ == "__main__"' in text:
        assert "sys.exit(ended(" in text, "its exit status after Ctrl-C"
