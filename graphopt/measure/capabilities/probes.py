"""The probes behind the table of capabilities: small programs, run in a child process. True: it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.module.index import parse
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.comparing.numeric import compare_outputs
from graphopt.measure.compiling.functions import compile_lowered, compile_with
from graphopt.measure.compiling.stub import StubCompiler

TRIALS: Final = 4
"""Random decision vectors tried per program."""

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Decide = Callable[[Graph], Decisions]


def _numbers(*shape: int) -> Any:
    return np.linspace(-1.5, 2.0, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _agrees(program: Program, transform: Callable[[bytes], bytes]) -> bool:
    """True if a program computes the same with its module replaced."""
    fn, args = program
    default, other = compile_with(fn, args), compile_with(fn, args, transform)
    return compare_outputs(default(), other()).equal


def _agrees_under(program: Program, decide: Decide) -> bool:
    def transform(data: bytes) -> bytes:
        graph = build_graph(data)
        return rewrite(graph, decide(graph)).data

    return _agrees(program, transform)


def _carried() -> Program:
    """A loop that carries several values in one buffer each, reads them, and writes slices of its results."""

    def step(carry: Any, row: Any) -> Any:
        total, low = carry
        moved = total[::-1] * 0.7 + jnp.sin(row)
        return (moved, jnp.minimum(low, moved)), moved * row

    def fn(start: Any, rows: Any) -> Any:
        return lax.scan(step, (start, start), rows, unroll=3)

    return fn, (_numbers(6), _numbers(18, 6))


def _updated() -> Program:
    """A loop that adds to places of an array and writes a slice of another, both in place."""

    def fn(places: Any, values: Any) -> Any:
        def step(i: Any, arrays: Any) -> Any:
            counts, trace = arrays
            counts = counts.at[places].add(values * i)
            return counts, lax.dynamic_update_slice(trace, counts[:1] + trace[1:2], (i,))

        return lax.fori_loop(0, 5, step, (jnp.zeros(8, jnp.float32), jnp.ones(9, jnp.float32)))

    return fn, (np.array([1, 3, 3, 7], np.int32), _numbers(4))


def _smooth() -> Program:
    def fn(x: Any, y: Any) -> Any:
        scaled = jnp.exp(x - x.max(axis=1, keepdims=True))
        return scaled / scaled.sum(axis=1, keepdims=True), jnp.tanh(x.T) @ y

    return fn, (_numbers(48, 40), _numbers(48, 24))


PROGRAMS: Final = (_carried, _updated, _smooth)


def hook() -> bool:
    """XLA asks Python for every module."""
    return bool(compile_with(lambda x: jnp.tanh(x) * 2.0, (_numbers(8),)).modules)


def platform() -> bool:
    """The client of CPUs has the name that the hook is registered for."""
    return str(jax.devices("cpu")[0].platform) == "cpu"


def identity() -> bool:
    """A module may be handed back: as it is, and written anew with the decisions that XLA took."""
    return all(
        _agrees(make(), lambda data: data) and _agrees_under(make(), lambda graph: graph.default)
        for make in PROGRAMS
    )


def in_place() -> bool:
    """Programs that write in place compute the same under any legal decisions."""
    return all(_agrees_under(make(), decide) for make in PROGRAMS for decide in _decisions())


def _decisions() -> Iterator[Decide]:
    yield lambda graph: graph.default.with_changes(fuse=graph.masks.fuse[:, 1].copy())
    yield lambda graph: graph.default.with_changes(fuse=~graph.masks.fuse[:, 0])
    yield _split
    for seed in range(TRIALS):
        yield lambda graph, seed=seed: graph.masks.sample(  # type: ignore[misc]
            np.random.default_rng(seed), graph.default, 0.3
        )


def _split(graph: Graph) -> Decisions:
    """Everything in memory, and loops on as many threads as there may be."""
    decisions = graph.default.copy().with_changes(fuse=~graph.masks.fuse[:, 0])
    for column, unit in enumerate(graph.units):
        if unit.kind is UnitKind.LOOP and unit.threads > 1:
            decisions.unit[graph.masks.unit[:, column]] = column
    return decisions


def native_call() -> bool:
    """A call with the attribute for small calls is one function, loops included."""

    def decide(graph: Graph) -> Decisions:
        native = unit_index(graph.units, UnitKind.NATIVE)
        unit = np.where(graph.masks.unit[:, native], native, graph.default.unit)
        return graph.default.with_changes(unit=unit.astype(graph.default.unit.dtype))

    return all(_agrees_under(make(), decide) for make in PROGRAMS)


_TURNED: Final = """\
HloModule turned

ENTRY main {
  p = f32[3,4]{1,0} parameter(0)
  ROOT t = f32[3,4]{0,1} copy(p)
}
"""


def entry_layout() -> bool:
    """The layout of results is that of the returned module, and jax reads them accordingly."""
    values = _numbers(3, 4)
    found = StubCompiler(hlo_from_text(_TURNED), [values]).compile(hlo_from_text(_TURNED))()
    return bool(np.array_equal(np.asarray(found), values))


def donation() -> bool:
    """A program whose module was replaced still gets and uses the buffers that its caller donates."""
    args = (_numbers(64, 64), _numbers(64, 64))

    def lower() -> Any:
        return jax.jit(lambda x, y: jnp.tanh(x) + y, donate_argnums=0).lower(*args)

    compiled = compile_lowered(lower, args, lambda data: data)
    if not any(parse(data).proto.input_output_alias for data in compiled.modules):
        return False
    analysis = compiled.executable.memory_analysis()
    with contextlib.suppress(AttributeError):
        return int(analysis.alias_size_in_bytes) > 0
    return False
