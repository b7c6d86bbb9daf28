"""Random array programs: the same results lazily, eagerly and in NumPy.

A program is Python code with control flow, assignments into parts, slices, mixed dtypes, shared
sub-expressions, tensors that are kept or dropped, and cuts at random places. It is decided by a random
generator alone, never by values, so that all three run the same operations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.console import Console

import graphopt.lazy as lt
from graphopt.progress import steps

STEPS: Final = 14
"""Operations per program, more or less."""

OFF_GRID: Final = 0.0123
"""Added to floats before anything that jumps (floor, sign, comparisons, casts to integers): results of
exact arithmetic sit on the jumps, where rounding decides."""

TOLERANCE: Final = 1e-4
"""Of float32 results, relative to the largest magnitude."""

NOISE: Final = 2.0**-21
"""Relative error of a float32 function that counts as rounding: four units in the last place."""

NOISE_RUNS: Final = 4
"""Runs with noise that tell how far a program amplifies rounding."""

AMPLIFIED: Final = 4.0
"""A result may differ this many times more than those of the runs with noise do ..."""

MAX_AMPLIFIED: Final = 1e-2
"""... up to this share of the largest magnitude: a program that jumps stays under suspicion."""

Result = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Mismatch:
    """A program with different results.

    Attributes:
        seed: of the program.
        mode: ``op-by-op``, ``compiled`` or ``auto``.
        what: what differed.
    """

    seed: int
    mode: str
    what: str

    def __str__(self) -> str:
        return f"program {self.seed} ({self.mode}): {self.what}"


class _NumpyWorld:
    """NumPy as the reference: the operations the programs use, with the dtypes of the lazy ones."""

    lazy = False

    def array(self, x: Any) -> Any:
        return np.array(x)

    def write(self, x: Any, key: Any, value: Any) -> Any:
        x[key] = value
        return x

    def add_to(self, x: Any, y: Any) -> Any:
        return (x + y).astype(x.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return getattr(np, {"pow": "power"}.get(name, name))(*args, **options)

    def total(self, x: Any, axis: int | None) -> Any:
        return np.asarray(np.sum(x, axis=axis, dtype=x.dtype))

    def branch(self, x: Any) -> bool:
        return bool(np.sum(x > 0) * 2 > x.size)

    def cut(self) -> None:
        """Nothing is pending."""


class _NoisyWorld(_NumpyWorld):
    """NumPy with rounding errors of another library: what they grow to is no mistake of anybody."""

    def __init__(self, seed: int) -> None:
        self._noise = np.random.default_rng(seed)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        result = super().call(name, *args, **options)
        if name not in _FLOAT:
            return result
        error = NOISE * self._noise.choice((-1.0, 0.0, 1.0), result.shape)
        return (result * (1.0 + error)).astype(result.dtype)


class _LazyWorld:
    """Lazy tensors."""

    lazy = True

    def array(self, x: Any) -> Any:
        return lt.asarray(x)

    def write(self, x: Any, key: Any, value: Any) -> Any:
        x[key] = value
        return x

    def add_to(self, x: Any, y: Any) -> Any:
        x += lt.astype(lt.broadcast_to(y, x.shape), x.dtype)
        return x

    def cast(self, x: Any, dtype: str) -> Any:
        return lt.astype(x, getattr(lt, dtype))

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return getattr(lt, name)(*args, **options)

    def total(self, x: Any, axis: int | None) -> Any:
        return lt.sum(x, axis=axis, dtype=x.dtype)

    def branch(self, x: Any) -> bool:
        return bool(lt.sum(lt.astype(x > 0, lt.int64)) * 2 > x.size)

    def cut(self) -> None:
        lt.sync()


_UNARY: Final = ("abs", "square", "negative", "floor", "sign")
_FLOAT: Final = ("tanh", "sin", "cos", "exp")
_BINARY: Final = ("add", "subtract", "multiply", "maximum", "minimum")
_DTYPES: Final = ("float32", "int32", "int64")


def run_program(seed: int, world: Any) -> Result:
    """Runs one program; returns the tensors that it kept, as NumPy arrays."""
    rng = random.Random(seed)
    data = np.random.default_rng(seed)
    pool: list[Any] = []
    for _ in range(rng.randint(2, 4)):
        values = data.integers(-4, 5, (rng.choice((1, 3)), 4))
        pool.append(world.array(values.astype(rng.choice(_DTYPES))))
    for _ in range(STEPS):
        x, y = rng.choice(pool), rng.choice(pool)
        result = rng.choice(_STATEMENTS)(rng, world, x, y)
        if result is not None:
            pool.append(_tame(world, result))
        if rng.random() < 0.25 and len(pool) > 3:
            pool.pop(rng.randrange(len(pool)))
        if rng.random() < 0.1:
            world.cut()
    return [np.array(x) for x in pool]


def _tame(world: Any, x: Any) -> Any:
    """Keeps values small, so that no dtype overflows and rounding stays visible."""
    return (
        world.call("remainder", x, 8)
        if str(x.dtype).startswith("int")
        else world.call("tanh", x) * 3.7
    )


def _like(world: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Both operands in one dtype: NumPy and the standard mix kinds differently."""
    name = "float32" if "float" in str(x.dtype) + str(y.dtype) else "int64"
    return world.cast(x, name), world.cast(y, name)


def _unary(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    return world.call(rng.choice(_UNARY), _off_grid(x))


def _off_grid(x: Any) -> Any:
    return x + OFF_GRID if "float" in str(x.dtype) else x


def _float(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    return world.call(rng.choice(_FLOAT), world.cast(x, "float32"))


def _binary(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    a, b = _like(world, x, y)
    return world.call(rng.choice(_BINARY), a, b)


def _scalar(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    return x * rng.choice((0, 1, 2, 3, -1)) + rng.randint(-3, 3)


def _shared(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    a, b = _like(world, x, y)
    common = a + b
    return world.call("where", _off_grid(common) > 0, common * a, common - b)


def _slice(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    start = rng.randint(0, 2)
    part = x[..., start : start + rng.randint(1, 2)]
    return world.call("concat", [part, x[..., ::-1]], axis=-1)[..., :4]


def _write(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    copy = x + 0
    kept = copy * 1  # must not see the write
    key = rng.choice(((..., 0), (0,), (..., slice(1, 3)), (-1, ...), (..., slice(None, None, 2))))
    copy = world.write(copy, key, rng.randint(-5, 5))
    return copy + kept


def _mask(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    copy = x + 0
    return world.write(copy, _off_grid(copy) > rng.randint(-2, 2), rng.randint(-3, 3))


def _in_place(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    big = world.call("broadcast_to", x, (3, 4)) + 0
    return world.add_to(big, world.cast(_off_grid(y), str(x.dtype)))


def _reduce(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    return x - world.total(x, rng.choice((None, 0)))


def _product(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    a, b = _like(world, world.call("broadcast_to", x, (3, 4)), y)
    return a @ b.T @ b


def _loop(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    a, b = _like(world, x, y)
    for k in range(rng.randint(1, 4)):
        a = _tame(world, a + b * k)
    return a


def _branch(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    return x * 2 if world.branch(_off_grid(x)) else x - 1


def _dropped(rng: random.Random, world: Any, x: Any, y: Any) -> None:
    _ = world.call("square", x) + 1  # recorded, never looked at


def _gather(rng: random.Random, world: Any, x: Any, y: Any) -> Any:
    indices = np.array([rng.randint(-4, 3) for _ in range(4)])
    return world.call("take", x, world.array(indices), axis=1)


_STATEMENTS: Final[tuple[Callable[..., Any], ...]] = (
    _unary, _float, _binary, _scalar, _shared, _slice, _write, _mask, _in_place, _reduce, _product,
    _loop, _branch, _dropped, _gather,
)  # fmt: skip


def check_program(seed: int, mode: str) -> Mismatch | None:
    """Runs one program lazily and in NumPy, and compares.

    Args:
        seed: of the program.
        mode: ``op-by-op`` (eager operations), ``compiled``, or ``auto``, which runs it three times so that
            every tier is used.
    """
    with np.errstate(all="ignore"):
        expected = run_program(seed, _NumpyWorld())
    with lt.config(tier=mode, background=False):
        for _ in range(3 if mode == "auto" else 1):
            result = run_program(seed, _LazyWorld())
            found = compare(result, expected)
            if found:
                found = compare(result, expected, amplified(seed, expected))
            if found:
                return Mismatch(seed, mode, found)
    return None


def amplified(seed: int, expected: Result) -> list[float]:
    """How far rounding errors alone can move each result of a program, absolutely."""
    found = [0.0] * len(expected)
    for number in range(NOISE_RUNS):
        with np.errstate(all="ignore"):
            noisy = run_program(seed, _NoisyWorld(number))
        for k, (a, b) in enumerate(zip(noisy, expected, strict=True)):
            if b.dtype.kind == "f" and a.shape == b.shape:
                moved = np.abs(a - b)[np.isfinite(a) & np.isfinite(b)]
                found[k] = max(found[k], AMPLIFIED * float(moved.max(initial=0.0)))
    return found


def compare(result: Result, expected: Result, allowed: list[float] | None = None) -> str:
    """What differs, or nothing.

    Args:
        result: of a program.
        expected: the same from NumPy.
        allowed: absolute difference per tensor that is amplified rounding; none by default.
    """
    if len(result) != len(expected):
        return f"{len(result)} tensors instead of {len(expected)}"
    for k, (a, b) in enumerate(zip(result, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"tensor {k}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        if b.dtype.kind == "f":
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=1.0))
            limit = TOLERANCE * scale
            if allowed is not None:
                limit = max(limit, min(allowed[k], MAX_AMPLIFIED * scale))
            if not np.allclose(a, b, rtol=TOLERANCE, atol=limit, equal_nan=True):
                return f"tensor {k}: differs by {np.nanmax(np.abs(a - b)):.2e}"
        elif not np.array_equal(a, b):
            return f"tensor {k}: different integers"
    return ""


def fuzz_lazy(programs: int, seed: int, console: Console | None = None) -> list[Mismatch]:
    """Checks random programs in all modes and prints what differs; after an interrupt, in those checked.

    Args:
        programs: how many.
        seed: of the first.
        console: where to print; standard output by default.
    """
    return check_all("program", range(seed, seed + programs), _mismatches, console)


def check_all(
    what: str,
    seeds: range,
    mismatches: Callable[[int], Iterable[Mismatch]],
    console: Console | None = None,
) -> list[Mismatch]:
    """Checks what seeds stand for and prints what differs; after an interrupt, in those checked.

    Args:
        what: one of them: ``program``.
        seeds: of all.
        mismatches: checks one.
        console: where to print; standard output by default.
    """
    console = console or Console()
    found: list[Mismatch] = []
    done = 0
    try:
        with steps(console, len(seeds), f"{what}s checked") as show:
            for number in seeds:
                show(f"{what} {number} ({len(found)} differ)", done)
                for mismatch in mismatches(number):
                    found.append(mismatch)
                    console.print(str(mismatch), highlight=False)
                done += 1
                if number % 50 == 49:
                    lt.clear_caches()
    finally:
        console.print(f"{done} {what}s: {len(found)} with different results")
    return found


def _mismatches(number: int) -> Iterator[Mismatch]:
    """Checks one program in all modes; in the slow one, every fifth."""
    modes = ("op-by-op", "auto") if number % 5 else ("op-by-op", "compiled", "auto")
    for mode in modes:
        mismatch = check_program(number, mode)
        if mismatch is not None:
            yield mismatch
