"""The child of ``graphopt fuzz``: compiles and runs one program under random legal decisions.

Reads one JSON request per line, ``{"seed": 7}``, and writes one JSON answer per line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import load_programs
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.machine import UnitKind, unit_index
from graphopt.measure import Compiled, compare_outputs, compile_with
from graphopt.measure.comparing.numeric import is_prng_key
from graphopt.measure.comparing.yardstick import Yardstick, host_leaves, program_yardstick

CHAOTIC_SLACK: Final = 1e3
"""Factor on the tolerance for programs declared to amplify rounding."""


def _random(change: float) -> Callable[[Graph, np.random.Generator], Decisions]:
    return lambda graph, rng: graph.masks.sample(rng, graph.default, change)


def _fuse_all(graph: Graph, rng: np.random.Generator) -> Decisions:
    decisions = graph.masks.sample(rng, graph.default, 0.02)
    decisions.fuse[graph.masks.fuse[:, 1]] = True
    return decisions


def _fuse_nothing(graph: Graph, rng: np.random.Generator) -> Decisions:
    decisions = graph.masks.sample(rng, graph.default, 0.02)
    decisions.fuse[graph.masks.fuse[:, 0]] = False
    return decisions


def _native(graph: Graph, rng: np.random.Generator) -> Decisions:
    decisions = graph.masks.sample(rng, graph.default, 0.1)
    unit = unit_index(graph.units, UnitKind.NATIVE)
    chosen = graph.masks.unit[:, unit] & (rng.random(len(graph)) < rng.choice([0.5, 0.9, 1.0]))
    decisions.unit[chosen] = unit
    return decisions


def _join_and_library(graph: Graph, rng: np.random.Generator) -> Decisions:
    decisions = graph.masks.sample(rng, graph.default, 0.2)
    decisions.join[graph.masks.join[:, 1]] = True
    unit = unit_index(graph.units, UnitKind.LIBRARY)
    decisions.unit[graph.masks.unit[:, unit] & (rng.random(len(graph)) < 0.5)] = unit
    return decisions


def _restructure(graph: Graph, rng: np.random.Generator) -> Decisions:
    decisions = (_native if rng.random() < 0.7 else _random(0.1))(graph, rng)
    allowed = graph.masks.restructure[:, 1:]
    codes = np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1) + 1
    chosen = allowed.any(axis=1) & (rng.random(len(graph)) < rng.choice([0.5, 1.0]))
    decisions.restructure[chosen] = codes[chosen]
    return decisions


MODES: Final[tuple[tuple[str, Callable[[Graph, np.random.Generator], Decisions]], ...]] = (
    ("few changes", _random(0.02)),
    ("some changes", _random(0.1)),
    ("many changes", _random(0.3)),
    ("all random", _random(1.0)),
    ("fuse everything", _fuse_all),
    ("fuse nothing", _fuse_nothing),
    ("native regions", _native),
    ("joins and library", _join_and_library),
    ("restructure", _restructure),
)
"""Ways to draw decisions; a trial's seed picks one."""


def draw(graph: Graph, seed: int) -> Decisions:
    """The decisions of one trial."""
    return MODES[seed % len(MODES)][1](graph, np.random.default_rng(seed))


class Worker:
    """One program, compiled by default once, then under many decisions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.fn, self.args = program.build()
        base: Compiled = compile_with(self.fn, self.args)
        self.base = base
        self.reference: Any = jax.tree.map(np.asarray, _keys_to_data(base()))

    @cached_property
    def yardstick(self) -> Yardstick:
        """How far the default is from itself; made when a result is beyond the fixed tolerances."""
        return program_yardstick(self.base.executable, self.base.args)

    def trial(self, seed: int) -> dict[str, Any]:
        """Compiles and runs under the decisions of `seed`; says how it went."""
        return self.judge(lambda graph: draw(graph, seed))

    def judge(self, decide: Callable[[Graph], Decisions]) -> dict[str, Any]:
        """Compiles and runs with the decisions that `decide` takes; says how it went."""
        start = time.perf_counter()

        def transform(data: bytes) -> bytes:
            graph = build_graph(data)
            return rewrite(graph, decide(graph)).data

        try:
            compiled = compile_with(self.fn, self.args, transform, forms=True)
        except Exception as error:
            return {"status": "compile error", "detail": _short(error)}
        compiled_at = time.perf_counter()
        try:
            result = _keys_to_data(compiled())
        except Exception as error:
            return {"status": "run error", "detail": _short(error)}
        slack = CHAOTIC_SLACK if self.program.chaotic else 1.0
        difference = compare_outputs(self.reference, result, slack=slack)
        equal = difference.equal or self.yardstick.judge(host_leaves(result)).equal
        return {
            "status": "ok" if equal else "wrong",
            "detail": "" if equal else f"{difference.leaf}: {difference.relative:.3g}",
            "relative": difference.relative,
            "compile_s": compiled_at - start,
            "run_s": time.perf_counter() - compiled_at,
        }


def _keys_to_data(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_prng_key(x) else x, tree)


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 900 else f"{text[:300]} ... {text[-600:]}"


def main(arguments: list[str]) -> int:
    """Serves requests until stdin closes."""
    spec, name, devices = arguments
    jax.config.update("jax_num_cpu_devices", int(devices))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # a program's prints must not look like answers
    worker = Worker(load_programs(spec)[name])
    for line in sys.stdin:
        answer = worker.trial(json.loads(line)["seed"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
