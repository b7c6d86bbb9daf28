"""Memory of a training loop: lazy tensors beside ``jax.jit`` with and without donated arguments.

    python -m benchmarks.lazy_memory [--width 2048] [--steps 15]

Each way trains a four-layer perceptron with momentum in a process of its own. Printed are MiB of resident
memory: what the loop adds at its peak to what the process holds before its arrays are made and after a
small loop ran. The peak is that of the steps after the compiles; what these left to the allocator is
given back first.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import graphopt.lazy as lt
from benchmarks.lazy_tensors import jax_training_step, lazy_loss, mlp
from benchmarks.progress import counted, ended

WARM_UP: Final = 6
SMALL: Final = 128
STATUS: Final = Path("/proc/self/status")


def _memory(field: str) -> float:
    """A field of this process' status, in MiB."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) / 1024


def _jit(width: int, donate: bool) -> Callable[[int], None]:
    weights, x, y = mlp(np.random.default_rng(0), width)
    step = jax.jit(jax_training_step(), donate_argnums=(0, 1) if donate else ())
    state: Any = ([jnp.asarray(w) for w in weights], [jnp.zeros(w.shape) for w in weights])
    data = jnp.asarray(x), jnp.asarray(y, jnp.int32)

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            *state, _ = step(*state, *data)
        jax.block_until_ready(state)

    return run


def _lazy(width: int) -> Callable[[int], None]:
    weights, x, y = mlp(np.random.default_rng(0), width)
    ws, ms = [lt.asarray(w) for w in weights], [lt.zeros(w.shape) for w in weights]
    data = lt.asarray(x), lt.asarray(y.astype(np.int32))
    gradient = lt.value_and_grad(lazy_loss)

    def run(steps: int) -> None:
        nonlocal ws, ms
        for _ in range(steps):
            with lt.step():
                _, grads = gradient(ws, *data)
                ms = [0.9 * m + g for m, g in zip(ms, grads, strict=True)]
                ws = [w - 0.01 * m for w, m in zip(ws, ms, strict=True)]
                del grads
        lt.eval(ws, ms, wait=True)

    return run


WAYS: Final[dict[str, Callable[[int], Callable[[int], None]]]] = {
    "jit": lambda width: _jit(width, False),
    "jit, donated": lambda width: _jit(width, True),
    "lazy": _lazy,
}


def _measure(way: str, width: int, steps: int) -> float:
    """MiB that the loop adds at its peak."""
    WAYS[way](SMALL)(WARM_UP)
    gc.collect()
    before = _memory("VmRSS")
    run = WAYS[way](width)
    run(WARM_UP)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what the first steps left to the allocator
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    run(steps)
    return _memory("VmHWM") - before


def main() -> None:
    """Prints a row per way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--way", default="")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(_measure(options.way, options.width, options.steps)))
        return
    print("| way | MiB at the peak |\n|---|---|")
    with counted(WAYS, "ways measured") as rest:
        for way in rest:
            command = [sys.executable, "-m", "benchmarks.lazy_memory", "--way", way]
            command += ["--width", str(options.width), "--steps", str(options.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"| {way} | {json.loads(done.stdout.splitlines()[-1]):.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(ended(main))
