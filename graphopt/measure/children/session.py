"""One module under measurement, inside the worker process: compile, check, time, profile variants."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from graphopt.hlo import Decisions, Graph, build_graph, rewrite, settle
from graphopt.hlo.rewrite import Rewrite
from graphopt.measure.bank.kernels import FEATURES, kernel_keys
from graphopt.measure.bank.profile import profile
from graphopt.measure.comparing.timing import compare
from graphopt.measure.comparing.yardstick import Run, Yardstick
from graphopt.measure.compiling.functions import UNOPTIMIZED
from graphopt.measure.compiling.stub import Executable, StubCompiler, signature
from graphopt.measure.inputs import load_inputs, made_up_inputs
from graphopt.store import decode_decisions

Answer = dict[str, Any]

KEPT_EXECUTABLES: Final = 6
LIBRARY: Final = [name for name, _ in FEATURES].index("library")


@dataclass
class Candidate:
    """One compiled variant.

    Attributes:
        executable: its code.
        rewrite: how it was made; None for XLA's own module.
        compile_s: seconds of XLA's compile.
        error: largest relative difference of its results from the default's.
    """

    executable: Executable
    rewrite: Rewrite | None
    compile_s: float
    error: float = 0.0


class WrongResult(Exception):
    """The candidate's results differ from the default's by more than rounding.

    Attributes:
        status: what the worker answers.
    """

    status = "wrong result"


class ChaoticResult(WrongResult):
    """They differ, but the default's own move as much with rounding."""

    status = "chaotic"


def _set_up_compiler() -> None:
    """The first compile of a process sets LLVM up, which is no part of what a program's compile takes."""
    jax.jit(jax.numpy.sin).lower(np.float32(1.0)).compile()


class Session:
    """Variants of one module; the default is compiled once and is the yardstick of all."""

    def __init__(self, module: Path, inputs: Path | None) -> None:
        """Loads the module and its inputs, compiles and runs the default.

        Raises:
            MeasureError: the module cannot be measured apart from its program.
        """
        self.data = module.read_bytes()
        arrays = (
            made_up_inputs(signature(self.data).parameters)
            if inputs is None
            else load_inputs(inputs)
        )
        self.graph: Graph = build_graph(self.data, allow_donation=True)
        self.stub = StubCompiler(self.data, arrays)
        _set_up_compiler()
        start = time.perf_counter()
        default = self.stub.compile(self.data)
        self.default = Candidate(default, None, time.perf_counter() - start)
        self.yardstick = Yardstick(partial(self._run, default), arrays, recompile=self._unoptimized)
        start = time.perf_counter()
        default()
        self.run_s = time.perf_counter() - start
        self._kept: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], Candidate] = OrderedDict()

    def _run(self, executable: Executable, inputs: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        placed = self.stub.place(inputs)
        return [np.asarray(r) for r in jax.tree.leaves(executable.compiled(*placed))]

    def _unoptimized(self) -> Run:
        return partial(self._run, self.stub.compile(self.data, UNOPTIMIZED))

    def candidate(self, decisions: str, options: dict[str, str]) -> Candidate:
        """Compiles and checks a variant, or finds it again.

        Raises:
            DecisionError, VerificationError: the decisions do not fit.
            WrongResult: its results differ.
        """
        if decisions == "{}" and not options:
            return self.default
        key = (decisions, tuple(sorted(options.items())))
        found = self._kept.get(key)
        if found is None:
            found = self._compile(decode_decisions(self.graph, decisions), options)
            while len(self._kept) >= KEPT_EXECUTABLES:
                self._kept.popitem(last=False)
            self._kept[key] = found
        self._kept.move_to_end(key)
        return found

    def _compile(self, decisions: Decisions, options: dict[str, str]) -> Candidate:
        result = rewrite(self.graph, decisions)
        start = time.perf_counter()
        executable = self.stub.compile(result.data, options)
        seconds = time.perf_counter() - start
        judgement = self.yardstick.judge(jax.tree.leaves(executable()))
        if not judgement.equal:
            kind = ChaoticResult if judgement.chaotic else WrongResult
            raise kind(judgement.errors())
        return Candidate(executable, result, seconds, judgement.relative)

    def measure(
        self, decisions: str, against: str, options: dict[str, str], budget_s: float
    ) -> Answer:
        """Times a variant in turn with another; stops early when the answer is clear."""
        rival = self.candidate(against, {})
        candidate = self.candidate(decisions, options)
        times = compare(
            rival.executable,
            candidate.executable,
            budget_s=budget_s,
            min_pairs=5,
            stop_when_clear=True,
        )
        return {
            "ratio": times.speedup,
            "low": times.low,
            "high": times.high,
            "baseline_s": times.baseline_s,
            "candidate_s": times.candidate_s,
            "pairs": times.pairs,
            "compile_s": candidate.compile_s,
            "default_compile_s": self.default.compile_s,
            "error": candidate.error,
            "clusters": candidate.rewrite.clusters if candidate.rewrite else 0,
            "regions": candidate.rewrite.regions if candidate.rewrite else 0,
        }

    def profile(self, decisions: str, runs: int) -> Answer:
        """Times of all kernels of a variant in place, with the keys under which the bank knows them.

        XLA's own module is profiled as its identity rewrite, whose kernels have keys.
        """
        graph, wanted = settle(self.graph, decode_decisions(self.graph, decisions))
        result = rewrite(graph, wanted)
        executable = self.stub.compile(result.data)
        keys = kernel_keys(graph, wanted)
        # The event of a loop covers those of its body: only kernels are looked for.
        names = {name: item for name, item in result.items.items() if item in keys}
        library = [n for n, i in names.items() if keys[i].features[LIBRARY] > 0]
        times = profile(executable, names, runs=runs, library=library)
        kernels = []
        for name, found in times.items():
            kernel = keys[names[name]]
            row = [kernel.key, found.ns, found.executions, names[name], list(kernel.features)]
            kernels.append(row)
        return {"kernels": kernels}
