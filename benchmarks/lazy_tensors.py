"""``python -m benchmarks lazy``: what lazy tensors cost and gain, against jax on the same programs.

Ratios come from interleaved runs in one process (`graphopt.measure.compare`), with their intervals.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import graphopt.lazy as lt
from benchmarks.lazy_programs.programs import PROGRAMS
from benchmarks.progress import counted
from graphopt.lazy.record import recorder
from graphopt.measure import Comparison, compare

CHAIN: Final = 60
"""Small operations in the graphs that are compared with eager ``jax.numpy``."""

LOOP_STEPS: Final = 10_000
MANY_STEPS: Final = 1_000_000
WARM_UP_STEPS: Final = 2_000


def run_lazy_bench(console: Console, budget_s: float) -> None:
    """Runs all measurements and prints each as a row of a Markdown table.

    Args:
        console: where to print.
        budget_s: seconds per comparison.
    """
    console.print("| measurement | target | result |\n|---|---|---|", highlight=False)
    with counted(_MEASUREMENTS, "measurements made") as rest:
        for name, target, measure in rest:
            row = f"| {name} | {target} | {measure(budget_s)} |"
            console.print(row, highlight=False, markup=False, soft_wrap=True)
            lt.clear_caches()


def _ratio(found: Comparison) -> str:
    return f"{found.speedup:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def _forget() -> None:
    recorder.state.now.restart()


def record_cost(operations: int = 1_000, repeats: int = 30) -> dict[str, float]:
    """Microseconds per recorded operation, by kind of operation: the median of several runs."""
    x, y = lt.asarray(np.ones(16, np.float32)), lt.asarray(np.ones(16, np.float32))
    kinds: dict[str, Callable[[Any], Any]] = {
        "x + y": lambda z: z + y,
        "x * 1.5": lambda z: z * 1.5,
        "lt.sin(x)": lambda z: lt.sin(z),
        "lt.sum(x)": lambda z: lt.sum(z, axis=0, keepdims=True),
        "x[0:]": lambda z: z[0:],
    }
    found = {}
    with lt.config(trace_limit=10 * operations):
        for name, operation in kinds.items():
            samples = []
            for _ in range(repeats):
                z, keep = x, []
                start = time.perf_counter()
                for _ in range(operations):
                    keep.append(operation(z))  # on the last result: equal operations are merged
                    z = keep[-1]
                samples.append((time.perf_counter() - start) / operations * 1e6)
                _forget()
            found[name] = median(samples)
    return found


def _recording(budget_s: float) -> str:
    gc.collect()
    return ", ".join(f"{name} {cost:.2f} us" for name, cost in record_cost().items())


def _per_operation(make: Callable[[], Any], operations: int, repeats: int) -> float:
    """Microseconds per ``x + y`` in a row of them: the median of several runs."""
    samples = []
    for _ in range(repeats):
        x = y = make()
        start = time.perf_counter()
        for _ in range(operations):
            x = x + y
        samples.append((time.perf_counter() - start) / operations * 1e6)
        if isinstance(x, jax.Array):
            x.block_until_ready()
        _forget()
    return median(samples)


def _single(budget_s: float) -> str:
    data = np.ones(256, np.float32)
    gc.collect()

    def cost(make: Callable[[], Any]) -> float:
        return _per_operation(make, operations=500, repeats=30)

    with lt.config(trace_limit=1_000):
        following = cost(lambda: lt.asarray(data))
        eager = cost(lambda: jnp.asarray(data))
        with lt.config(replay=False):
            recording = cost(lambda: lt.asarray(data))
    return (
        f"following {following:.2f} us, 1/{eager / following:.0f}; recording {recording:.2f} us, "
        f"1/{eager / recording:.0f} of {eager:.1f} us"
    )


def sync_cost(operations: int, repeats: int = 200) -> float:
    """Microseconds of a cut that finds its graph compiled, the program's own time not counted."""
    x, y = lt.asarray(np.ones(16, np.float32)), lt.asarray(np.ones(16, np.float32))
    samples = []
    with lt.config(tier="compiled", trace_limit=10 * operations + 100):
        for number in range(repeats + 3):
            z = x
            for _ in range(operations):
                z = z + y
            start = time.perf_counter()
            lt.sync()
            if number >= 3:
                samples.append((time.perf_counter() - start) * 1e6)
            z.block_until_ready()
    return median(samples)


def _cached_sync(budget_s: float) -> str:
    costs = {n: sync_cost(n) for n in (1, 100, 1_000)}
    return ", ".join(f"{n} operations {cost:.0f} us" for n, cost in costs.items())


def mlp(rng: np.random.Generator, width: int) -> tuple[list[Any], Any, Any]:
    """Weights of a four-layer perceptron, and a batch of inputs [128, 64] and labels [128]."""
    shapes = ((64, width), (width, width), (width, width), (width, 10))
    weights = [(rng.normal(size=s) / s[0] ** 0.5).astype(np.float32) for s in shapes]
    return weights, rng.normal(size=(128, 64)).astype(np.float32), rng.integers(0, 10, 128)


def jax_training_step() -> Callable[..., Any]:
    """A step of the training in jax, not compiled: (weights, momenta, x, y) -> the same and the loss."""

    def loss(ws: Any, x: Any, y: Any) -> Any:
        for w in ws[:-1]:
            x = jax.nn.gelu(x @ w)
        scores = jax.nn.log_softmax(x @ ws[-1])
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=-1))

    def step(ws: Any, ms: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(ws, x, y)
        ms = [0.9 * m + g for m, g in zip(ms, grads, strict=True)]
        return [w - 0.01 * m for w, m in zip(ws, ms, strict=True)], ms, value

    return step


def lazy_loss(ws: Any, x: Any, y: Any) -> Any:
    """Cross entropy of the perceptron, on lazy tensors."""
    for w in ws[:-1]:
        x = lt.nn.gelu(x @ w)
    return lt.mean(lt.nn.cross_entropy(x @ ws[-1], y))


STEPS_PER_SAMPLE: Final = 10
WARM_UP_SAMPLES: Final = 100
"""Small steps run together after some hundred of them."""


def training_steps(width: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same training, lazily and under ``jax.jit``: each call makes some steps, then waits.

    Neither waits within the steps, as in a training loop: the host prepares one step while the device
    works on the one before.
    """
    weights, x, y = mlp(np.random.default_rng(0), width)
    step = jax.jit(jax_training_step())
    with_jax: dict[str, Any] = {
        "w": [jnp.asarray(w) for w in weights], "m": [jnp.zeros(w.shape) for w in weights],
        "x": jnp.asarray(x), "y": jnp.asarray(y, jnp.int32),
    }  # fmt: skip
    lazy: dict[str, Any] = {
        "w": [lt.asarray(w) for w in weights], "m": [lt.zeros(w.shape) for w in weights],
        "x": lt.asarray(x), "y": lt.asarray(y.astype(np.int32)),
    }  # fmt: skip
    gradient = lt.value_and_grad(lazy_loss)

    def jax_step() -> None:
        for _ in range(STEPS_PER_SAMPLE):
            with_jax["w"], with_jax["m"], loss = step(
                with_jax["w"], with_jax["m"], with_jax["x"], with_jax["y"]
            )
        jax.block_until_ready((with_jax["w"], loss))  # type: ignore[no-untyped-call]

    def lazy_step() -> None:
        for _ in range(STEPS_PER_SAMPLE):
            with lt.step():
                loss, grads = gradient(lazy["w"], lazy["x"], lazy["y"])
                lazy["m"] = [0.9 * m + g for m, g in zip(lazy["m"], grads, strict=True)]
                lazy["w"] = [w - 0.01 * m for w, m in zip(lazy["w"], lazy["m"], strict=True)]
                del grads
        lt.eval(lazy["w"], loss, wait=True)

    return jax_step, lazy_step


def _training(width: int) -> Callable[[float], str]:
    def measure(budget_s: float) -> str:
        jax_step, lazy_step = training_steps(width)
        for _ in range(WARM_UP_SAMPLES):
            lazy_step()
        found = compare(jax_step, lazy_step, budget_s=budget_s)
        low, high = 1 / found.high, 1 / found.low
        ratio = f"{1 / found.speedup:.2f}x the time of jit [{low:.2f}, {high:.2f}]"
        return f"{ratio}, {found.candidate_s * 1e3 / STEPS_PER_SAMPLE:.2f} ms"

    return measure


def host_time(run: Callable[[], Any], repeats: int = 40) -> float:
    """Microseconds of this thread's own processor time in a call: the least of several."""
    samples = []
    for _ in range(repeats):
        start = time.thread_time()
        run()
        samples.append(time.thread_time() - start)
    return min(samples) * 1e6


def _host(budget_s: float) -> str:
    jax_step, lazy_step = training_steps(32)
    for _ in range(WARM_UP_SAMPLES):
        jax_step()
        lazy_step()
    lazy, jitted = (host_time(run) / STEPS_PER_SAMPLE for run in (lazy_step, jax_step))
    return f"{lazy:.0f} us, jit {jitted:.0f} us"


def _chain(xp: Any, x: Any, y: Any) -> Any:
    for k in range(CHAIN // 6):
        x = xp.tanh(x * 0.5 + y) - xp.sin(y) * (0.1 * k + 0.05)
    return xp.sum(x)


def _eager(budget_s: float) -> str:
    data = np.random.default_rng(0).normal(size=(2, 256)).astype(np.float32)
    a, b = (jnp.asarray(v) for v in data)
    c, d = (lt.asarray(v) for v in data)
    for _ in range(3):
        with lt.step():
            last = _chain(lt, c, d)
    del last
    found = compare(
        lambda: float(_chain(jnp, a, b)), lambda: float(_chain(lt, c, d)), budget_s=budget_s
    )
    return f"{_ratio(found)} faster, {found.candidate_s * 1e6:.0f} us for {CHAIN} operations"


def memory_growth(steps: int = LOOP_STEPS, marked: bool = False) -> float:
    """Growth of resident memory in MiB over a loop with a cut or a step per round, after warm-up."""
    x = lt.ones((64, 64))

    def run(count: int) -> None:
        nonlocal x
        for k in range(count):
            with lt.step() if marked else contextlib.nullcontext():
                x = lt.tanh(x * 0.9 + 0.01 * (k % 7))
            if not marked:
                lt.sync()

    run(WARM_UP_STEPS)
    gc.collect()
    before = _resident()
    run(steps)
    gc.collect()
    return (_resident() - before) / 2**20


def _resident() -> float:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


UNMARKED_ROUNDS: Final = 5_000


def _unmarked(budget_s: float) -> str:
    """A loop without `lt.step`: seconds of its first run, and microseconds per round later and by jit."""
    (program,) = [p for p in PROGRAMS if p.name == "physics simulator"]
    start = program.state(np.random.default_rng(0))
    step = jax.jit(lambda state: program.step(jnp, None, state))

    def run(step: Callable[[Any], Any], state: Any) -> float:
        begin = time.perf_counter()
        for _ in range(UNMARKED_ROUNDS):
            state = step(state)
        np.asarray(state[0])
        return time.perf_counter() - begin

    lazy = [
        run(lambda s: program.step(lt, None, s), tuple(map(lt.asarray, start))) for _ in range(5)
    ]
    jitted = [run(step, tuple(map(jnp.asarray, start))) for _ in range(5)]
    each, by_jit = (median(x[2:]) / UNMARKED_ROUNDS * 1e6 for x in (lazy, jitted))
    return f"first run {lazy[0]:.1f} s, later {each:.0f} us per round, jit {by_jit:.0f} us"


def _memory(budget_s: float) -> str:
    cuts, steps = memory_growth(), memory_growth(MANY_STEPS, marked=True)
    return f"{cuts:+.1f} MiB over {LOOP_STEPS:,} cuts, {steps:+.1f} MiB over {MANY_STEPS:,} steps"


_MEASUREMENTS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("recording", "3 us per operation", _recording),
    ("one operation, against eager jax.numpy", "1/15, 1/8", _single),
    ("cached cut", "60 us + 3 us per operation", _cached_sync),
    ("training step, width 32", "1.25x", _training(32)),
    ("training step, width 128", "1.05x", _training(128)),
    ("training step, width 512", "1.02x", _training(512)),
    ("host time of a training step", "none", _host),
    ("small operations, against eager jax.numpy", "5x", _eager),
    (f"loop of {UNMARKED_ROUNDS:,} rounds without steps", "none", _unmarked),
    ("memory", "no growth", _memory),
)
