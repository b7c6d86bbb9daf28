"""Running a whole program on the thread that calls it.

XLA:CPU hands a program to a worker thread and returns at once, unless it counts fewer than 1,000 operations
in it (``HloCostAnalysis`` over the entry computation of what was compiled, loops counted once). Whoever then
waits for the result sleeps, and is woken by the worker: some tens of microseconds, more than many a program
takes.

The count of a reduction is its operand's elements less its result's. A reduction of nothing to n results
counts -n; fused with a slice of no elements it is never computed, and the program becomes one of few
operations. Decided once per program, at the first parameter of its entry computation.
"""

from __future__ import annotations

from math import inf, isqrt, prod
from typing import Any, Final

import numpy as np

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import (
    LOCAL_ID,
    ComputationIndex,
    Instruction,
    ModuleIndex,
    Role,
    device_count,
)
from graphopt.hlo.module.opcodes import OP_BY_NAME, OPS, OpKind
from graphopt.hlo.module.proto import DType, HloComputationProto
from graphopt.hlo.restructure.rows.loops.unroll import MAX_TRIPS
from graphopt.hlo.restructure.sites import Candidate
from graphopt.hlo.restructure.writing.blocks import Block, ModuleEditor
from graphopt.hlo.restructure.writing.values import array_shape

RULES: Final = {
    "not-the-program": "only the program's first parameter stands for the program",
    "several-devices": "a device would wait on that thread for others, whose programs it has to start",
    "convolution": "a convolution is computed by all threads, and takes an unknown time",
    "calls-out": "it calls code that may wait for something, or call Python",
    "unknown-trips": "it may run for any time: a loop's trip count is not known",
    "long-program": "the caller would wait for too long, and could not prepare the next call",
    "on-the-caller": "so few operations that XLA runs it there already, however its loops are written",
}

OPCODES: Final = frozenset({"parameter"})

MAX_ELEMENTS: Final = 1 << 22
"""Elements computed per run, scalars included: a millisecond of native code, more or less."""

CHEAP_OPERATIONS: Final = 1000
"""Programs of fewer run on the caller's thread anyway (``cheap_computation_`` of XLA's CPU client)."""

CREDIT: Final = 1 << 30
"""Operations taken off XLA's count: far more than a program has that runs for some microseconds."""

_COMPUTED: Final = np.array([op.kind is not OpKind.STRUCTURE for op in OPS], np.bool_)
"""bool [opcodes]; all but those that only pass values on, as what a loop carries."""

_UNCOUNTED: Final = frozenset(
    "cbrt copy cosine erf exponential exponential-minus-one log log-plus-one "
    "logistic power rsqrt sine sqrt tan tanh".split()
)
"""Elementwise operations that XLA's count of operations leaves out."""

_COUNTED: Final = frozenset({"dot", "fft", "fusion", "sort"})
"""Operations of the runtime whose count is known."""

_SAFE_CALLS: Final = ("lapack_", "TopK")
"""How the targets of custom calls begin that compute and return."""


def forbids(candidate: Candidate) -> str | None:
    """Why a node does not stand for a program that may run on the thread that calls it."""
    graph, node = candidate.graph, candidate.node
    if node != first_parameter(graph, -1):
        return "not-the-program"
    if device_count(graph.source.module) > 1:
        return "several-devices"
    if any(c.role is Role.LOOP_BODY and c.trip_count is None for c in graph.computations):
        return "unknown-trips"
    if (graph.executions * graph.elements)[_COMPUTED[graph.opcode]].sum() > MAX_ELEMENTS:
        return "long-program"
    if any(_calls_out(graph, other) for other in range(len(graph))):
        return "calls-out"
    if any(op.name == "convolution" for op in graph.ops):
        return "convolution"
    if is_on_caller(graph.source.module):
        return "on-the-caller"
    return None


def is_on_caller(module: ModuleIndex) -> bool:
    """True for a program of so few operations that XLA runs it on the thread that calls it."""
    return most_operations(module, CHEAP_OPERATIONS) < CHEAP_OPERATIONS


def is_on_caller_now(module: ModuleIndex) -> bool:
    """The same, its loops as they are: XLA counts each once."""
    return most_operations(module, CHEAP_OPERATIONS, written_out=False) < CHEAP_OPERATIONS


def stays_on_caller(module: ModuleIndex) -> bool:
    """The same, of a program of nothing but operations whose count is known."""
    if not is_on_caller_now(module):
        return False
    opcodes = {i.opcode for c in module.computations.values() for i in c.instructions}
    known = (OP_BY_NAME.get(opcode) for opcode in opcodes - _COUNTED)
    return all(op is not None and op.kind is not OpKind.RUNTIME for op in known)


def _calls_out(graph: Graph, node: int) -> bool:
    name = graph.ops[node].name
    if name in ("infeed", "outfeed"):
        return True
    if name != "custom-call":
        return False
    instruction = graph.source.protos[node]
    return not instruction.custom_call_target.startswith(_SAFE_CALLS)


def most_operations(module: ModuleIndex, enough: float = inf, *, written_out: bool = True) -> int:
    """About what XLA counts for a module at most.

    The count is that of the kernels as XLA fused them, what several compute counted for each.

    Args:
        module: of the program.
        enough: a count of so many operations is not continued.
        written_out: count what it would be if all its shortest loops were written out, not each loop once.
    """
    times = {int(module.proto.entry_computation_id): 1}
    total = 0
    for computation in reversed(module.computations.values()):  # callers before what they call
        repeated = times.get(computation.id, 0)
        if not repeated:
            continue
        for instruction in computation.instructions:
            total += repeated * _operations(computation, instruction)
            if total >= enough:
                return total
            if instruction.opcode in ("fusion", "while", "conditional", "call"):
                trips = _written_out(instruction) if written_out else 1
                times.update((called, repeated * trips) for called in instruction.called)
    return total


def _written_out(instruction: Instruction) -> int:
    """How often the row ``unroll`` may write the body of an instruction."""
    if instruction.opcode != "while":
        return 1
    trips = backend_config.trip_count(instruction.proto.backend_config)
    return trips if trips is not None and 0 < trips <= MAX_TRIPS else 1


def _operations(computation: ComputationIndex, instruction: Instruction) -> int:
    """About what XLA counts for one execution of an instruction: its operations, functions aside."""
    op = OP_BY_NAME.get(instruction.opcode)
    if op is None or op.name in _UNCOUNTED:
        return 0
    if op.kind is OpKind.ELEMENTWISE:
        return int(prod(instruction.shape.dimensions))
    if op.kind is not OpKind.REDUCING and op.name not in ("sort", "fft", "dot"):
        return 0
    elements = int(prod(instruction.shape.dimensions))
    read = [int(prod(computation.by_id[o].shape.dimensions)) for o in instruction.operands]
    if op.name == "sort":
        return read[0] * (read[0] - 1).bit_length()
    if op.kind is OpKind.REDUCING or op.name == "fft":
        return max(elements, *read)
    if op.name == "dot":
        # Products per element, from the sizes alone; batches count as if contracted.
        return 2 * elements * max(1, isqrt(prod(read) // max(elements, 1)))
    return 0


def take_off(module: Any) -> None:
    """Adds a kernel of no elements, for which XLA counts -`CREDIT` operations, to the entry computation.

    Args:
        module: ``HloModuleProto``, the entry computation last; changed in place.
    """
    editor = ModuleEditor(module.computations)
    body = Block(editor, editor.new_computation_id(), 0, 1)
    zero = body.constant(DType.F32, 0.0)
    nothing = body.broadcast(zero, (0, CREDIT))
    combined = body.reduce(nothing, zero, [0], body.function("add", DType.F32), DType.F32)
    body.finish("caller_thread", body.slice(combined, [0], [0]))
    editor.written[-1].is_fusion_computation = True
    entry = HloComputationProto()
    entry.CopyFrom(module.computations[-1])
    del module.computations[-1]
    last = max(i.id & LOCAL_ID for i in entry.instructions)
    block = Block(editor, entry.id, 0, last + 1)
    block.add(
        "fusion", array_shape(DType.F32, (0,)),
        fusion_kind="kLoop", called_computation_ids=[body.computation],
    )  # fmt: skip
    entry.instructions.extend(block.protos)
    module.computations.extend([*editor.written, entry])
