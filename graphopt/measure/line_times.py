"""Where the time of a program goes, by line of the user's source: one profiled run of a module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from graphopt.hlo.graph.source_lines import ModuleLines, SourceLine
from graphopt.hlo.module.index import (
    ComputationIndex,
    Instruction,
    ModuleIndex,
    parse,
)
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.module.small_calls import is_small_call
from graphopt.measure.bank.profile import profile

PROFILED_RUNS: Final = 3

_FREE: Final = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})


@dataclass(frozen=True)
class LineTime:
    """What one line of source takes in one run of a module.

    Attributes:
        line: the user's line; None for what has none, and for loops and dispatch themselves.
        seconds: per run.
        kernels: calls of kernels and native functions per run.
    """

    line: SourceLine | None
    seconds: float
    kernels: float


def line_times(data: bytes, run: Callable[[], Any], total_s: float) -> tuple[LineTime, ...]:
    """The time of a module by source line, longest first; empty where nothing could be traced.

    A native function is one event: its time is divided among the lines of the operations inside, by their
    number. What no kernel accounts for (loops, dispatch, the call itself) has the line None.

    Args:
        data: the module as it was compiled.
        run: runs it once and waits.
        total_s: seconds of one run without tracing.
    """
    module = parse(data)
    lines = ModuleLines(module.proto)
    shares = {found.name: _shares(module, found, lines) for found in _kernels(module)}
    times = profile(run, shares, runs=PROFILED_RUNS)
    found = sum(time.executions * time.ns for time in times.values()) * 1e-9
    if not found:
        return ()
    scale = min(1.0, total_s / found)  # kernels on several threads overlap
    seconds: defaultdict[SourceLine | None, float] = defaultdict(float)
    kernels: defaultdict[SourceLine | None, float] = defaultdict(float)
    for name, time in times.items():
        for line, share in shares[name].items():
            seconds[line] += share * time.executions * time.ns * 1e-9 * scale
            kernels[line] += share * time.executions
    seconds[None] += max(total_s - found, 0.0)
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    return tuple(LineTime(line, taken, kernels[line]) for line, taken in longest if taken > 0)


def _kernels(module: ModuleIndex) -> Iterator[Instruction]:
    """Instructions with an event of their own that covers no other instruction's."""
    for computation in module.graph_computations():
        if _is_native(module, computation):
            continue
        for instruction in computation.instructions:
            if instruction.opcode in _FREE:
                continue
            op = OP_BY_NAME.get(instruction.opcode)
            control = op is not None and op.kind is OpKind.CONTROL
            if not control or is_small_call(instruction):
                yield instruction


def _is_native(module: ModuleIndex, computation: ComputationIndex) -> bool:
    """True for a computation inside a native function."""
    while computation.caller is not None:
        caller, outside = computation.caller
        computation = module.computations[outside]
        if is_small_call(computation.by_id[caller]):
            return True
    return False


def _shares(
    module: ModuleIndex, instruction: Instruction, lines: ModuleLines
) -> dict[SourceLine | None, float]:
    """Parts of an instruction's time that lines of source have; they add up to 1."""
    if is_small_call(instruction):
        counts = Counter(
            lines.read(inside.proto.metadata)
            for inside in _inside(module, instruction)
            if inside.opcode not in _FREE
        )
        counts.pop(None, None)
        if counts:
            return {line: count / counts.total() for line, count in counts.items()}
    line = lines.read(instruction.proto.metadata)
    if line is None and instruction.called:
        roots = (module.computations[called] for called in instruction.called)
        line = next(filter(None, (lines.read(c.by_id[c.root].proto.metadata) for c in roots)), None)
    return {line: 1.0}


def _inside(module: ModuleIndex, instruction: Instruction) -> Iterator[Instruction]:
    for called in instruction.called:
        for inside in module.computations[called].instructions:
            yield inside
            yield from _inside(module, inside)
