"""Convolutions by XLA and in their forms, with both gradients: the figures behind the estimates.

    python -m benchmarks.convolutions [--only depthwise] [--all]

Each row is one operation: XLA's time and each form's, in turn in one process, as milliseconds of processor
time (the least of several runs). Keep it on one core
(`taskset -c 0`) for the facts of `graphopt.machine.CpuCosts`, which are times of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.progress import counted, ended
from graphopt.forms import FORMS, Array, Operation, choose
from graphopt.machine import own_costs

RUNS = 5

# Input (batch, spatial, channels), window, output channels, stride, groups.
LAYERS: dict[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "depthwise 112": ((1, 112, 112, 32), 3, 32, 1, 32),
    "depthwise 112, stride 2": ((1, 112, 112, 96), 3, 96, 2, 96),
    "depthwise 14": ((1, 14, 14, 384), 3, 384, 1, 384),
    "depthwise 7": ((1, 7, 7, 960), 3, 960, 1, 960),
    "depthwise 14, 7x7": ((1, 14, 14, 384), 7, 384, 1, 384),
    "depthwise, small": ((1, 8, 8, 16), 3, 16, 1, 16),
    "depthwise 1d": ((1, 512, 768), 4, 768, 1, 768),
    "depthwise 1d, 31": ((1, 400, 256), 31, 256, 1, 256),
    "groups of 4": ((1, 56, 56, 128), 3, 128, 1, 32),
    "groups of 8": ((1, 28, 28, 96), 3, 96, 1, 12),
    "groups of 8, few pixels": ((8, 3, 3, 368), 3, 368, 1, 46),
    "depthwise 6, 7x7": ((8, 6, 6, 192), 7, 192, 1, 192),
    "groups of 16": ((1, 28, 28, 64), 3, 64, 1, 4),
    "groups of 24": ((1, 28, 28, 192), 3, 192, 1, 8),
    "1x1": ((1, 56, 56, 24), 1, 144, 1, 1),
    "1x1, stride 2": ((1, 56, 56, 256), 1, 512, 2, 1),
    "stem": ((1, 112, 112, 3), 3, 32, 2, 1),
    "3x3": ((1, 28, 28, 128), 3, 128, 1, 1),
    "1d": ((1, 128, 64), 5, 64, 1, 1),
}


def operations(name: str, channels_first: bool) -> Iterator[tuple[Any, Any, Any, dict[str, Any]]]:
    """Operands, primitive and parameters of a layer and of both its gradients."""
    dims, window, outputs, stride, groups = LAYERS[name]
    spatial = "HW"[: len(dims) - 2]
    layout, kernel = "N" + spatial + "C", spatial + "IO"
    weights = (*(window for _ in spatial), dims[-1] // groups, outputs)
    if channels_first:
        layout, kernel = "NC" + spatial, "OI" + spatial
        dims = (dims[0], dims[-1], *dims[1:-1])
        weights = (weights[-1], weights[-2], *weights[:-2])

    def layer(x: Any, w: Any) -> Any:
        made = lax.conv_general_dilated(
            x, w, [stride] * len(spatial), "SAME",
            dimension_numbers=(layout, kernel, layout), feature_group_count=groups,
        )  # fmt: skip
        return jnp.sum(made)

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (dims, weights)]
    for equation in jax.make_jaxpr(jax.grad(layer, (0, 1)))(*shapes).jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            x, w = (variable.aval for variable in equation.invars)
            yield x, w, equation.primitive, equation.params


def least_ms(fns: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Processor time of each, in turn."""
    best = dict.fromkeys(fns, float("inf"))
    for run in range(RUNS + 1):
        for name, fn in fns.items():
            start = time.process_time()
            jax.block_until_ready(fn())
            if run:
                best[name] = min(best[name], (time.process_time() - start) * 1e3)
    return best


def measure(x: Any, w: Any, primitive: Any, params: dict[str, Any], every: bool) -> str:
    """One line: the choice, and what was measured."""
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=a.shape), a.dtype) for a in (x, w)]
    result = jax.eval_shape(lambda *a: primitive.bind(*a, **params), *args)
    arrays = [Array(tuple(a.shape), np.dtype(a.dtype)) for a in (*args, result)]
    operation = Operation(primitive.name, tuple(arrays[:2]), (arrays[2],), params)
    choice = choose(operation, own_costs())
    forms = [form for form in FORMS if primitive.name in form.primitives]
    wanted = [f for f in forms if f is choice.form or (every and f.forbids(operation) is None)]
    fns = {"XLA": jax.jit(lambda *a: primitive.bind(*a, **params))}
    for form in wanted:
        fns[form.name] = jax.jit(lambda *a, form=form: form.compute(operation, a)[0])
    found = least_ms({name: lambda fn=fn: fn(*args) for name, fn in fns.items()})
    taken = choice.form.name if choice.form else "XLA"
    return f"-> {taken}; " + ", ".join(f"{name} {ms:.3f}" for name, ms in found.items())


def main() -> None:
    """Prints a line per operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="layers whose name holds this")
    parser.add_argument("--all", action="store_true", help="forms that are not chosen as well")
    options = parser.parse_args()
    with counted((n for n in LAYERS if options.only in n), "layers measured") as rest:
        for name in rest:
            for channels_first in (False, True):
                kinds = ("forward", "weights", "input")
                parts = operations(name, channels_first)
                for kind, (x, w, primitive, params) in zip(kinds, parts, strict=False):
                    layout = "channels first" if channels_first else "channels last"
                    line = measure(x, w, primitive, params, options.all)
                    print(f"{name}, {layout}, {kind} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(ended(main))
