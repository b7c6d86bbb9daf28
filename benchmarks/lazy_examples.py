"""The examples of the lazy runtime with its optimizer hook on and off: results and times.

    python -m benchmarks.lazy_examples [--rounds 7] [--only NAME]

Two child processes per example, one with the hook and one without, run it in turn; the first runs, which
compile, do not count. A third runs it as often in checked mode: every optimized graph is compared with XLA's
default.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import sys
import time
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.progress import counted, ended
from graphopt.measure.children.child import Child
from graphopt.measure.comparing.timing import summarise

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "lazy"
ARGUMENTS: dict[str, dict[str, int]] = {
    "bouncing_particles": {},
    "cartpole_reinforce": {"episodes": 200},
    "digits_cnn": {"epochs": 8},
    "digits_transformer": {"epochs": 6},
}
WARM_UP = 2
TIMEOUT_S = 600.0


def run_example(name: str) -> tuple[float, Any]:
    """Seconds and result of one run of an example's ``main``, its output hidden."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no example {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.perf_counter()
        result = module.main(**ARGUMENTS[name])
        return time.perf_counter() - start, result


def child(name: str, mode: str) -> None:
    """Runs an example once per line of input; answers with seconds and result as JSON."""
    import graphopt.lazy as lt

    if mode == "off":
        lt.set_optimizer(None)
    for _ in sys.stdin:
        with lt.checked() if mode == "checked" else contextlib.nullcontext():
            seconds, result = run_example(name)
        numbers = [float(x) for x in np.ravel(np.asarray(result, np.float64))]
        outcome = dict(lt.metrics().optimizer)
        print(json.dumps({"seconds": seconds, "result": numbers, "optimizer": outcome}), flush=True)


def start(name: str, mode: str) -> Child:
    """A child that runs an example once per request."""
    return Child(["-m", "benchmarks.lazy_examples", "--child", mode, "--only", name], name)


def run(process: Child) -> dict[str, Any]:
    """One run of the example."""
    return dict(json.loads(process.ask("run", TIMEOUT_S)))


def measure(name: str, rounds: int) -> float:
    """Prints a row of a Markdown table; returns time off / time on."""
    on, off, checked = (start(name, mode) for mode in ("on", "off", "checked"))
    for _ in range(WARM_UP):
        run(on)
        run(off)
    pairs = [(run(on), run(off)) for _ in range(rounds)]
    times = summarise(np.array([(b["seconds"], a["seconds"]) for a, b in pairs]))
    for _ in range(WARM_UP):  # graphs seen for the first time run op by op: nothing to compare
        run(checked)
    outcome = run(checked)["optimizer"]
    equal = all(np.allclose(a["result"], b["result"], rtol=1e-2, atol=1e-4) for a, b in pairs)
    for process in (on, off, checked):
        process.close()
    differs = outcome.get("differs from the default", 0)
    print(
        f"| {name} | {times.baseline_s:.2f} | {times.speedup:.2f}x | "
        f"{times.low:.2f}-{times.high:.2f} | {'yes' if equal else 'NO'} | {differs} | "
        f"{', '.join(f'{k}: {v}' for k, v in outcome.items())} |",
        flush=True,
    )
    return times.speedup


def main() -> None:
    """Measures all examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.only, options.child)
        return
    print(
        "| example | seconds, hook off | off / on | 95 % interval | equal results | graphs that differ "
        "| outcomes |"
    )
    print("| --- " * 7 + "|")
    names = [options.only] if options.only else list(ARGUMENTS)
    ratios = []
    with counted(names, "examples measured") as rest:
        for name in rest:
            ratios.append(measure(name, options.rounds))
    print(f"\ngeometric mean {geometric_mean(ratios):.2f}x, smallest {min(ratios):.2f}x")


if __name__ == "__main__":
    sys.exit(ended(main))
