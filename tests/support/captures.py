"""What several test modules share: programs compiled once, graphs, and small edits of decisions."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.corpus import Program
from graphopt.corpus.demo import DEMO
from graphopt.corpus.fuzzing import FUZZ
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.module.proto import HloInstructionProto, HloModuleProto
from graphopt.machine import UnitKind, cpu_units, probe
from graphopt.measure import Compiled, compile_with, modules_of
from support.shared import shared

PROGRAMS: tuple[Program, ...] = (*DEMO, *FUZZ)

CORES = max(2, probe().cores)
MACHINE = replace(probe(), cores=CORES, units=cpu_units(CORES))
"""The probed machine with at least two cores, so that partitioning is always a decision."""


@dataclass(frozen=True)
class Captured:
    """A function as XLA hands it to the hook. Code is generated for it when its result is first asked for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    data: bytes
    graph: Graph
    name: str = ""

    @functools.cached_property
    def result(self) -> Any:
        """What the function returns, compiled by XLA's default; programs with names run once per test run."""
        return shared(f"{self.name} result", self._run) if self.name else self._run()

    def _run(self) -> Any:
        return jax.tree.map(np.asarray, compile_with(self.fn, self.args)())

    def compile(self, data: bytes) -> Compiled:
        """The function compiled from other module bytes."""
        return compile_with(self.fn, self.args, lambda _: data)


def capture(fn: Callable[..., Any], *args: Any) -> Captured:
    """The module of `fn(*args)` and its graph."""
    placed = jax.tree.map(jnp.asarray, args)
    (data,) = modules_of(fn, placed)
    return Captured(fn, placed, data, build_graph(data, MACHINE))


@functools.cache
def captured(name: str) -> Captured:
    """A corpus program, compiled once per test process."""
    fn, args = (DEMO if name in DEMO else FUZZ)[name].build()
    return replace(capture(fn, *args), name=name)


def proto_of(data: bytes) -> Any:
    """A fresh ``HloModuleProto`` that the caller may edit."""
    return HloModuleProto.FromString(data)


def normal(*shape: int, seed: int = 0) -> Any:
    """f32[*shape] from a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def nodes(graph: Graph, opcode: str) -> list[int]:
    """All nodes with an opcode."""
    return [node for node, op in enumerate(graph.ops) if op.name == opcode]


def node(graph: Graph, opcode: str) -> int:
    """The only node with an opcode."""
    (found,) = nodes(graph, opcode)
    return found


def unit(graph: Graph, kind: UnitKind, threads: int | None = None) -> int:
    """Index of the first execution unit of a kind, on so many threads if that matters."""
    return next(
        i for i, u in enumerate(graph.units) if u.kind is kind and threads in (None, u.threads)
    )


def changed(decisions: Decisions, **fields: dict[int, int]) -> Decisions:
    """A copy with some entries replaced: ``changed(d, fuse={3: 0}, unit={5: 1})``."""
    out = decisions.copy()
    for name, values in fields.items():
        for index, value in values.items():
            getattr(out, name)[index] = value
    return out


def with_unit_everywhere(graph: Graph, index: int) -> Decisions:
    """The default decisions with one unit wherever the masks allow it."""
    out = graph.default.copy()
    out.unit[graph.masks.unit[:, index]] = index
    return out


def native_calls(data: bytes) -> list[Any]:
    """The calls that XLA emits as one native function each."""
    return [
        instruction
        for computation in proto_of(data).computations
        for instruction in computation.instructions
        if instruction.opcode == "call"
        and any(
            (entry.key, entry.value) == ("xla_cpu_small_call", "true")
            for entry in instruction.frontend_attributes.map
        )
    ]


# A module's clusters, read from its bytes without any of graphopt's own reading.

LOCAL_ID = 0xFFFFFFFF

_NOT_CONTENT = (
    "name",
    "metadata",
    "id",
    "operand_ids",
    "called_computation_ids",
    "control_predecessor_ids",
    "original_value",
)

Cluster = tuple[tuple[str, ...], str, tuple[int, ...]]
"""(sorted opcodes of the body, fusion kind, partitions)."""


def _partitions(backend_config: bytes) -> tuple[int, ...]:
    loaded = json.loads(backend_config or b"{}")
    return tuple(int(part) for part in loaded.get("outer_dimension_partitions", ()))


class _Numbering:
    """Numbers the values of a computation; equal instructions on equal operands get one number."""

    def __init__(self, computations: dict[int, Any]) -> None:
        self.computations = computations
        self.number_of: dict[int, int] = {}
        self.known: dict[Any, int] = {}

    def add(self, instruction: Any) -> bool:
        """Numbers an instruction; True if it is the first of its kind."""
        content = HloInstructionProto.FromString(instruction.SerializeToString())
        for field in _NOT_CONTENT:
            content.ClearField(field)
        key = (
            content.SerializeToString(deterministic=True),
            tuple(self.number_of[i & LOCAL_ID] for i in instruction.operand_ids),
            tuple(self._content_of(c) for c in instruction.called_computation_ids),
        )
        is_new = key not in self.known
        self.number_of[instruction.id & LOCAL_ID] = self.known.setdefault(key, len(self.known))
        return is_new

    def _content_of(self, computation_id: int) -> tuple[Any, ...]:
        inner = _Numbering(self.computations)
        computation = self.computations[computation_id]
        for instruction in computation.instructions:
            inner.add(instruction)
        return (*inner.known, inner.number_of[computation.root_id & LOCAL_ID])


def _body_opcodes(fusion: Any, outer: _Numbering) -> tuple[str, ...]:
    """Sorted opcodes of a fusion's body, no parameters, constants, repetitions, and no mark at the root."""
    numbering = _Numbering(outer.computations)
    opcodes = []
    body = outer.computations[fusion.called_computation_ids[0]]
    for inner in body.instructions:
        if inner.opcode == "bitcast-convert" and inner.id == body.root_id:
            continue
        if inner.opcode == "parameter":
            operand = fusion.operand_ids[inner.parameter_number]
            numbering.number_of[inner.id & LOCAL_ID] = -1 - outer.number_of[operand & LOCAL_ID]
        elif numbering.add(inner) and inner.opcode != "constant":
            opcodes.append(inner.opcode)
    return tuple(sorted(opcodes))


def _native_computations(data: bytes) -> set[int]:
    """Ids of what is part of a native function: partitions mean nothing there, and XLA ignores them."""
    called = {
        computation.id: {
            callee
            for instruction in computation.instructions
            for callee in instruction.called_computation_ids
        }
        for computation in proto_of(data).computations
    }
    waiting = [callee for call in native_calls(data) for callee in call.called_computation_ids]
    found: set[int] = set()
    while waiting:
        computation = waiting.pop()
        if computation not in found:
            found.add(computation)
            waiting += called[computation]
    return found


def clusters_of(data: bytes, *, merged: bool = False) -> Counter[Cluster]:
    """The fusions of a module; with `merged`, equal fusions of equal operands count once."""
    computations = {c.id: c for c in proto_of(data).computations}
    native = _native_computations(data)
    found: Counter[Cluster] = Counter()
    for computation in computations.values():
        numbering = _Numbering(computations)
        for instruction in computation.instructions:
            is_new = numbering.add(instruction)
            if instruction.opcode == "fusion" and (is_new or not merged):
                opcodes = _body_opcodes(instruction, numbering)
                split = computation.id not in native
                parts = _partitions(instruction.backend_config) if split else ()
                found[opcodes, instruction.fusion_kind, parts] += 1
    return found
