"""`lt.vmap`: a function of single examples, applied to a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.node import Node, Op, aval_of, leaf
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import parts, record
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut, executors
from graphopt.lazy.runtime.trace import Plan, Trace, make_plan
from graphopt.lazy.transforms.containers import flatten


class Example:
    """Stands for the unknown value of one example; observing it is an error."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise LazyTypeError(
            what="the value of a single example inside lt.vmap was observed",
            where=source_lines.line_of(source_lines.here()),
            fix="Keep Python control flow on values out of mapped functions; use lt.where.",
        )


class _Program:
    """A recorded function of one example; equal structures are one object.

    Attributes:
        plan: the graph; its leaves are examples and whatever else the function used.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


_programs: Final[dict[Any, _Program]] = {}


def _run(*values: Any) -> Any:
    *arrays, program, axes, out_axes = values
    plan = program.plan
    leaves = len(plan.leaf_slots)

    def one(*xs: Any) -> tuple[Any, ...]:
        roots, _ = executors.replay(plan, xs[:leaves], xs[leaves:])
        return tuple(roots)

    return jax.vmap(one, in_axes=axes, out_axes=out_axes)(*arrays)


_VMAP: Final = Op("vmap", _run)


def vmap(fn: Callable[..., Any], in_axes: Any = 0, out_axes: int = 0) -> Callable[..., Any]:
    """A function that applies `fn` to every example of a batch at once.

    Args:
        fn: a function of tensors (or nested containers) of one example; it may not observe values.
        in_axes: batch axis of each positional argument, or one for all; None: not batched.
        out_axes: batch axis of the results.

    Raises:
        LazyValueError: at the call: no batch axis, or batches of different lengths.
        LazyTypeError: at the call: `fn` observes a value.
    """

    def wrapped(*args: Any) -> Any:
        """`fn` over the mapped axes of its arguments."""
        per_argument = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(per_argument) != len(args):
            raise _fail(f"in_axes={in_axes!r} for {len(args)} arguments", "Give one per argument.")
        call, examples = [], []
        for arg, axis in zip(args, per_argument, strict=True):
            flat, tree = flatten(arg)
            fresh = []
            for x in flat:
                if axis is None or not isinstance(x, TensorBase):
                    fresh.append(x)
                    continue
                one, entry = _example(x, axis)
                examples.append(entry)
                fresh.append(one)
            call.append(jax.tree_util.tree_unflatten(tree, fresh))
        if len({x.shape[axis] for _, x, axis in examples}) != 1:
            raise _fail("batches of no or different lengths", "Batch at least one argument alike.")
        outputs, out_tree = flatten(fn(*call))
        return jax.tree_util.tree_unflatten(out_tree, _mapped(outputs, examples, out_axes))

    return wrapped


def _fail(what: str, fix: str) -> Exception:
    return LazyValueError(
        what=f"vmap: {what}", where=source_lines.line_of(source_lines.here()), fix=fix
    )


def _example(x: Any, axis: int) -> tuple[Any, tuple[Node, Any, int]]:
    position = operands.axis_of(axis, x.ndim, "vmap")
    shape = x.shape[:position] + x.shape[position + 1 :]
    node = leaf(Example(), aval_of(shape, x.dtype, x.device))
    return recorder.new_tensor(node), (node, x, position)


def _independent(roots: list[Node], examples: set[Node]) -> frozenset[Node]:
    """Pending nodes behind the roots that depend on no example: they are computed outside, once."""
    order = Trace(roots).nodes
    depends = set(examples)
    for node in order:
        if not depends.isdisjoint(node.inputs):
            depends.add(node)
    return frozenset(n for n in order if n not in depends and n not in roots)


def _mapped(outputs: list[Any], examples: list[tuple[Node, Any, int]], out_axes: int) -> list[Any]:
    cut.run_waiting()
    given = {node: (x._node, axis) for node, x, axis in examples}
    nodes = []
    for out in outputs:
        if not isinstance(out, TensorBase):
            raise LazyTypeError(
                what=f"a mapped function returned {type(out).__name__}",
                where=source_lines.line_of(source_lines.here()),
                fix="Return tensors.",
            )
        node = out._node
        if node.data is not None:  # an argument or a constant, returned as it is
            node = record(OPS["variable"], (node,))._node
        nodes.append(node)
    roots = list(dict.fromkeys(nodes))
    trace = Trace(roots, _independent(roots, set(given)))
    program = _programs.get(trace.key)
    if program is None:
        program = _programs.setdefault(trace.key, _Program(make_plan(trace)))
    inputs, axes = [], []
    for node in trace.leaves:
        whole, axis = given.get(node, (node, None))
        inputs.append(whole)
        axes.append(axis)
    inputs += trace.scalars
    axes += [None] * len(trace.scalars)
    mapped = parts(record(_VMAP, tuple(inputs), (program, tuple(axes), out_axes)))
    by_node = dict(zip(trace.roots, mapped, strict=True))
    return [by_node[node] for node in nodes]
