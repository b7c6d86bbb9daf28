"""What the start page asks of a newcomer, timed in an empty directory.

    python -m benchmarks.first_steps [--jax "jax<0.12"]

A wheel of this checkout stands for the index. Each step is a command as the page prints it, in a new
environment and with a store of its own; the script is one that a newcomer might have. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.progress import counted, ended

ROOT: Final = Path(__file__).resolve().parents[1]

SCRIPT: Final = """\
import time

import jax
import jax.numpy as jnp


@jax.jit
def simulate(x, v, key):
    def step(state, key):
        x, v = state
        push = jax.random.normal(key, x.shape) * 0.01
        force = -jnp.sin(x) - 0.1 * v + push
        hit = jnp.abs(x) > 3.0
        v = jnp.where(hit, -0.9 * v, v + 0.02 * force)
        x = jnp.clip(x + 0.02 * v, -3.0, 3.0)
        return (x, v), jnp.sum(0.5 * v**2 + 1 - jnp.cos(x))

    return jax.lax.scan(step, (x, v), jax.random.split(key, 500))


def builder():
    return simulate, (jnp.linspace(-2, 2, 32), jnp.zeros(32), jax.random.key(0))


if __name__ == "__main__":
    fn, args = builder()
    jax.block_until_ready(fn(*args))
    times = []
    for _ in range(200):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append(time.perf_counter() - start)
    print(f"{sorted(times)[100] * 1e3:.3f} ms a run")
"""
"""A small simulator, timed by its own means."""

LIMIT_S: Final = 600.0
"""Longest time of one step."""


def steps(jax: str, wheel: Path) -> list[tuple[str, list[str], str]]:
    """(what, command, beginning of the line of its output that is shown)."""
    python, bin_ = "env/bin/python", "env/bin/graphopt"
    return [
        ("environment", [sys.executable, "-m", "venv", "env"], ""),
        ("`pip install graphopt`", [python, "-m", "pip", "install", "-q", str(wheel), jax], ""),
        ("`graphopt doctor`", [bin_, "doctor"], "hook: "),
        ("own script, by jax alone", [python, "sim.py"], ""),
        ("`graphopt run sim.py`", [bin_, "run", "sim.py"], ""),
        (
            "`graphopt explain`",
            [bin_, "explain", "sim:builder", "--html", "why.html"],
            "measured: ",
        ),
        ("`graphopt tune`", [bin_, "tune", "sim:builder", "--budget-s", "60"], "sim"),
        ("`graphopt run sim.py`, tuned", [bin_, "run", "sim.py"], ""),
    ]


def run_step(command: list[str], folder: Path, shown: str) -> tuple[float, str]:
    """Seconds of a step, and the line of its output that is shown."""
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "GRAPHOPT_STORE": str(folder / "store.sqlite"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith(shown)]
    return time.perf_counter() - begin, lines[0].split(";")[0] if lines else ""


def main() -> None:
    """Prints a table: what was done, seconds, what it said."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_steps", description=__doc__)
    parser.add_argument("--jax", default="jax", help="requirement of jax, such as jax==0.11.2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphopt-first-") as name:
        folder = Path(name)
        (folder / "sim.py").write_text(SCRIPT)
        building = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", name, str(ROOT)]
        subprocess.run(building, check=True)
        (wheel,) = folder.glob("*.whl")
        rows = []
        with counted(steps(options.jax, wheel), "steps done") as rest:
            for what, command, shown in rest:
                rows.append((what, *run_step(command, folder, shown)))
    print("| step | seconds | what it said |\n| --- | --- | --- |")
    for what, seconds, said in rows:
        print(f"| {what} | {seconds:.1f} | {said} |")
    print(f"| all | {sum(seconds for _, seconds, _ in rows):.0f} |  |")


if __name__ == "__main__":
    sys.exit(ended(main))
