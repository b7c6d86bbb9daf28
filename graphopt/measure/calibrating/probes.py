"""The probes: what each runs, which facts it tells of, and what it reads on a known machine.

A reading is a time in nanoseconds. Facts of the table stand for whole programs and are rounder than any
reading, so a reading is never a fact: the fact is the table's value times the reading over the reference's,
or divided by it where the fact is a rate. The table serves kinds of machines whose readings lie apart, by a
factor of two for products, and decides well on each: a reading between theirs tells of no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.errors import MeasureError
from graphopt.machine import probe
from graphopt.measure.calibrating.programs import (
    Step,
    chain,
    compile_loop,
    compile_on,
    shortest_ns,
)

Reading = Callable[[float], float]
"""Seconds to spend -> nanoseconds."""

SMALL: Final = 4
"""Elements of an array that costs nothing to compute."""

IN_FIRST_CACHE: Final = 1 << 12
IN_SECOND_CACHE: Final = 1 << 15
BEYOND_CACHES: Final = 1 << 24
"""Elements of arrays of single precision."""

SPLIT: Final = 1 << 19
BUSY: Final = 0.95
"""A kernel in two parts that takes more of its time in one part never had another core."""


@dataclass(frozen=True)
class Probe:
    """One measurement.

    Attributes:
        name: for people and for the child process.
        facts: names of the facts it tells of, see `graphopt.machine.named_facts`.
        reference_ns: shortest and longest reading on the kinds that the table was made on, two cores each:
            Intel Xeon and AMD EPYC with 512-bit vectors, jaxlib 0.10.2 to 0.12.0.
        read: makes the measurement.
        spread: readings on one machine lie as far apart, as a ratio: less is no difference.
    """

    name: str
    facts: tuple[str, ...]
    reference_ns: tuple[float, float]
    read: Reading
    spread: float = 1.3

    def slowness(self, reading_ns: float) -> float:
        """A reading over the nearest of the references; 1 between them."""
        shortest, longest = self.reference_ns
        return reading_ns / min(max(reading_ns, shortest), longest)


def _multiply_add(x: Any) -> Any:
    return x * 1.01 + 0.5


def _ones(elements: int) -> Any:
    return jnp.ones(elements, jnp.float32)


def _call(seconds: float) -> float:
    """A call of a jitted function that computes next to nothing."""
    function, x = jax.jit(lambda x: x + 1.0), _ones(SMALL)
    (reading,) = shortest_ns([lambda: function(x).block_until_ready()], seconds)
    return reading


def _dispatch(seconds: float) -> float:
    """One kernel more in a chain of tiny ones."""
    few, many = 50, 200  # each step is two kernels
    step: Step = lambda x: jnp.tanh(x) * 1.01  # noqa: E731
    programs = [
        compile_on(chain(step, n), (_ones(SMALL),), "loop@1", apart=True) for n in (few, many)
    ]
    short, long = shortest_ns(programs, seconds)
    return (long - short) / (2 * (many - few))


def _iteration(elements: int, step: Step, counts: tuple[int, int], seconds: float) -> float:
    """One iteration more of a loop over an array, its kernel included."""
    few, many = counts
    loop = compile_loop(step, _ones(elements))
    short, long = shortest_ns([loop(few), loop(many)], seconds)
    return (long - short) / (many - few)


def _beyond_iteration(elements: int, step: Step, counts: tuple[int, int], seconds: float) -> float:
    """The same, less an iteration over hardly any elements."""
    empty = _iteration(SMALL, _multiply_add, (10, 210), seconds / 4)
    return _iteration(elements, step, counts, 3 * seconds / 4) - empty


def _many_operations(x: Any) -> Any:
    for number in range(16):
        x = x * 1.01 + 0.5 * number
    return x


def _hand_over(seconds: float) -> float:
    """What is missing to half the time when two cores share a kernel.

    Raises:
        MeasureError: there is one core, or the other one is busy.
    """
    if probe().cores < 2:
        raise MeasureError(what="one core", where="hand-over", fix="Nothing is handed over here.")
    step: Step = lambda x: jnp.tanh(jnp.tanh(x) * 1.01)  # noqa: E731
    programs = [compile_on(step, (_ones(SPLIT),), f"loop@{n}") for n in (1, 2)]
    alone, shared = shortest_ns(programs, seconds)
    if shared > BUSY * alone:
        raise MeasureError(
            what="the other core was busy all the time",
            where="hand-over",
            fix="Measure again on an idle machine.",
        )
    return shared - alone / 2


def _product(size: int, unit: str, seconds: float) -> float:
    """One product more in a chain of products of square matrices."""
    few, many = 4, 20
    matrix = jnp.eye(size, dtype=jnp.float32)

    def products(times: int) -> Callable[[Any, Any], Any]:
        return lambda x, w: chain(lambda value: value @ w, times)(x)

    programs = [compile_on(products(n), (matrix, matrix), unit, op="dot") for n in (few, many)]
    short, long = shortest_ns(programs, seconds)
    return (long - short) / (many - few)


def _large_product(seconds: float) -> float:
    """What a product of 64 x 64 matrices takes beyond one of 16 x 16."""
    small, large = (_product(size, "runtime", seconds / 2) for size in (16, 64))
    return large - small


def _element(function: Step, dtype: Any, seconds: float) -> float:
    """One element more of a function."""
    few, many = 1 << 12, 1 << 14
    arrays = [jnp.asarray(np.linspace(-0.5, 0.5, n), dtype) for n in (few, many)]
    short, long = shortest_ns([compile_on(function, (x,), "loop@1") for x in arrays], seconds)
    return (long - short) / (many - few)


_MEMORY = partial(_beyond_iteration, BEYOND_CACHES, _multiply_add, (1, 4))
_CACHE = partial(_beyond_iteration, IN_SECOND_CACHE, _multiply_add, (10, 110))
_OPERATIONS = partial(_beyond_iteration, IN_FIRST_CACHE, _many_operations, (10, 110))

_Range = tuple[float, float]
_FUNCTIONS: Final[dict[str, tuple[Step, tuple[str, ...], _Range, _Range]]] = {
    "exponential": (
        lax.exp,
        ("exponential", "exponential-minus-one", "logistic"),
        (0.336, 0.39),
        (0.78, 0.9),
    ),
    "tanh": (lax.tanh, ("tanh",), (0.255, 0.34), (0.58, 0.88)),
    "log": (lambda x: lax.log(x * x + 1), ("log", "log-plus-one"), (0.41, 0.44), (2.87, 3.5)),
    "sine": (lax.sin, ("sine", "cosine"), (1.36, 1.7), (3.95, 7.9)),
    "power": (lambda x: lax.pow(x * x + 1, x), ("power",), (4.3, 4.5), (9.1, 10.7)),
}
"""Name -> what is run, functions whose cost goes with it, readings of the references in f32 and f64."""


def _function_probes() -> list[Probe]:
    made = []
    for place, dtype in enumerate(("float32", "float64")):
        short = f"f{dtype[-2:]}"
        for name, (function, like, *references) in _FUNCTIONS.items():
            facts = tuple(f"function_ns.{other}.{short}" for other in like)
            read = partial(_element, function, dtype)
            made.append(Probe(f"{name} {short}", facts, references[place], read))
    return made


PROBES: Final = (
    Probe("dispatch", ("thunk_ns", "short_thunk_ns"), (9.2, 13.0), _dispatch),
    Probe("hand-over", ("handover_ns", "split_ns"), (45e3, 67e3), _hand_over, spread=3.0),
    # Nothing about the library on its caller's thread: with calls of 7 us it may take as long as with 24.
    Probe("call", ("call_ns", "buffer_ns"), (24e3, 30e3), _call),
    Probe("library call", ("library_call_ns",), (428.0, 520.0), partial(_product, 16, "library")),
    Probe("runtime call", ("runtime_call_ns",), (725.0, 860.0), partial(_product, 16, "runtime")),
    Probe(
        "loop",
        ("loop_ns", "short_loop_ns"),
        (25.0, 35.0),
        partial(_iteration, SMALL, _multiply_add, (10, 210)),
    ),
    Probe("memory", ("bytes_per_ns",), (2.4e6, 3.4e6), _MEMORY, spread=2.0),
    Probe("cache", ("cached_bytes_per_ns",), (1480.0, 1920.0), _CACHE),
    Probe(
        "operations", ("operations_per_ns", "fused_operations_per_ns"), (955.0, 1570.0), _OPERATIONS
    ),
    # Products of the library and of native loops keep the same multipliers busy.
    Probe("product", ("dot_flops_per_ns", "fast_flops_per_ns"), (2450.0, 5300.0), _large_product),
    *_function_probes(),
)
"""What matters most comes first: the time may run out."""
