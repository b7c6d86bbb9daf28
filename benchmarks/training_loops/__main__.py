"""Training loops that donate their state, by XLA's default and with graphopt.

    python -m benchmarks.training_loops [--only large_adam] [--budget-s 3] [--out FILE.json]

Needs flax, equinox, haiku and optax. Both programs are compiled in one process and timed in turn; each goes
on from its own state. Results are compared after one step from the same state, as tuning does: a difference
is rounding if the default's own is as large when its inputs move in their last bits. Memory is what XLA
assigns: arguments, results and temporaries, less what results share with arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import jax
import jax.numpy as jnp

import graphopt
from benchmarks.progress import counted, ended
from benchmarks.training_loops.programs import PROGRAMS, Loop
from graphopt.machine import machine_key
from graphopt.measure import compare
from graphopt.measure.comparing.yardstick import host_leaves, program_yardstick


@dataclass(frozen=True)
class Row:
    """One loop.

    Attributes:
        name: of the program.
        outcome: what became of its module.
        equal: the states agree to rounding.
        default_ms: milliseconds of one step by XLA's default.
        speedup: default time / time with graphopt, with the 95 % interval `low` to `high`.
        aliased: bytes of results in donated buffers, by default and with graphopt.
        memory: bytes at the most, by default and with graphopt.
        state_bytes: of the state.
    """

    name: str
    outcome: str
    equal: bool
    default_ms: float
    speedup: float
    low: float
    high: float
    aliased: tuple[int, int]
    memory: tuple[int, int]
    state_bytes: int


class Run:
    """A compiled loop that goes on from its own state."""

    def __init__(self, loop: Loop) -> None:
        """Compiles under what is installed."""
        step, self.state, self.inputs = loop
        fresh = lambda state, *inputs: step(state, *inputs)  # noqa: E731 - jax must not know it
        jitted = jax.jit(fresh, donate_argnums=0)
        self.compiled = jitted.lower(self.state, *self.inputs).compile()

    def __call__(self) -> Any:
        """One step; waits for it."""
        self.state, loss = self.compiled(self.state, *self.inputs)
        jax.block_until_ready(loss)
        return loss

    def once(self, state: Any, *inputs: Any) -> Any:
        """One step from a state of the host's, which stays."""
        return self.compiled(jax.tree.map(jnp.array, state), *inputs)

    @property
    def aliased(self) -> int:
        """Bytes of results in donated buffers."""
        return int(self.compiled.memory_analysis().alias_size_in_bytes)

    @property
    def memory(self) -> int:
        """Bytes at the most."""
        used = self.compiled.memory_analysis()
        sizes = used.argument_size_in_bytes, used.output_size_in_bytes, used.temp_size_in_bytes
        return int(sum(sizes) - used.alias_size_in_bytes)


def measure(name: str, policy: str, budget_s: float) -> Row:
    """Compiles a loop twice, compares, and times both in turn."""
    graphopt.uninstall()
    default = Run(PROGRAMS[name]())
    graphopt.reset_report()
    graphopt.install(policy, store=False)
    changed = Run(PROGRAMS[name]())
    record = max(graphopt.report().records, key=lambda r: r.nodes)
    graphopt.uninstall()
    start = jax.device_get((default.state, *default.inputs))
    equal = program_yardstick(default.once, start).judge(host_leaves(changed.once(*start))).equal
    times = compare(default, changed, budget_s=budget_s)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(default.state))
    return Row(
        name, record.outcome.value if not record.reason else f"{record.outcome}: {record.reason}", equal,
        times.baseline_s * 1e3, times.speedup, times.low, times.high,
        (default.aliased, changed.aliased), (default.memory, changed.memory), size,
    )  # fmt: skip


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--policy", default="shipped")
    parser.add_argument("--budget-s", type=float, default=3.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    head = "| program | default ms | graphopt | 95 % interval | aliased kB | memory kB | outcome |"
    print(f"jax {jax.__version__}, {machine_key()}\n\n{head}\n|---|---|---|---|---|---|---|")
    with counted(options.only, "programs measured") as rest:
        for name in rest:
            row = measure(name, options.policy, options.budget_s)
            rows.append(row)
            before, after = (f"{size / 1e3:.1f}" for size in row.aliased)
            most, least = (f"{size / 1e3:.0f}" for size in row.memory)
            print(
                f"| {row.name} | {row.default_ms:.3f} | {row.speedup:.2f}x | {row.low:.2f}-{row.high:.2f} | "
                f"{before}, {after} | {most}, {least} | "
                f"{row.outcome}{'' if row.equal else ', NOT EQUAL'} |",
                flush=True,
            )
    print(f"\nGeometric mean {geometric_mean(row.speedup for row in rows):.2f}x")
    if options.out is not None:
        about = {"jax": jax.__version__, "machine": machine_key(), "policy": options.policy}
        options.out.write_text(json.dumps({**about, "rows": [asdict(r) for r in rows]}, indent=1))
    raise SystemExit(0 if all(row.equal for row in rows) else 1)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(ended(main))
