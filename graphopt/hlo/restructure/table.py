"""The table of restructures: operations that can be replaced, with what, and when.

Row 0 leaves an operation as it is. `Decisions.restructure` indexes the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.restructure.rows import (
    caller_thread,
    dot_blocks,
    dot_reduce,
    dot_swap,
    lapack,
    loop_kernel,
    pack,
    reduce_windows,
    running_window,
    scatter,
    sequential,
    slice_reduce,
    sort,
    window_doubling,
)
from graphopt.hlo.restructure.rows.loops import carried, hoist, invariants, unroll, unroll_by
from graphopt.hlo.restructure.rows.turned import products as turned
from graphopt.hlo.restructure.rows.turned import rows as along_rows
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.values import Value


@dataclass(frozen=True)
class Restructure:
    """One row.

    Attributes:
        name: for reports and costs.
        opcodes: operations that it replaces; an opaque ``fusion`` counts as one.
        summary: what is written instead, for people.
        forbids: the name of the rule that forbids it for a candidate, or None.
        expand: writes the replacement; returns the value of the operation's shape.
        behind: nodes beyond the operands that the replacement reads; they are put in memory too.
        opens: the operation is a wall (no native region may contain it) and the replacement is none.
        exact: the result is bit-equal; otherwise equal to rounding.
        joins: new values of one shape are best computed together, as outputs of one cluster.
        replaces: an operation is replaced; otherwise the kernel rooted there, or the program, is written
            in another way.
        around: what is written runs beside the operation, not in its place: it belongs to the loop
            around it, if there is one.
        on_caller: the program runs on the thread that calls it.
        in_order: the kernels of the computation run one after the other.
        drops: nothing is written: what reads the operation reads the value that `expand` returns. Only
            in loops that stay.
        turns: what is computed of the operation element by element has its last two dimensions exchanged,
            which is done before anything is replaced.
        edits: nodes whose instructions that changes; they stand in no kernel of a library.
        along: nodes that are replaced by the same row together with one, whatever else is chosen for them.
        orders: (candidate, order: node -> nodes that come after it) -> nodes to put in memory, as `behind`
            would where nothing else is left out, having added to the order what must come first; None if
            that cannot. Of rows that drop.
    """

    name: str
    opcodes: frozenset[str]
    summary: str
    forbids: Callable[[Candidate], str | None]
    expand: Callable[[Site], Value]
    behind: Callable[[Candidate], list[int]] = lambda _: []
    opens: bool = False
    exact: bool = True
    joins: bool = False
    replaces: bool = True
    around: bool = False
    on_caller: bool = False
    in_order: bool = False
    drops: bool = False
    turns: bool = False
    edits: Callable[[Candidate], list[int]] = lambda _: []
    along: Callable[[Candidate], list[int]] = lambda _: []
    orders: Callable[[Candidate, dict[int, list[int]]], list[int] | None] = lambda *_: []


def _keep(site: Site) -> Value:
    raise AssertionError(f"{site.instruction.name} is not replaced")


RESTRUCTURES: Final[tuple[Restructure, ...]] = (
    Restructure("keep", frozenset(), "the operation as it is", lambda _: None, _keep),
    Restructure(
        "scatter-loop", frozenset({"scatter", "fusion"}),
        "a loop of slice, combine and update, one window after the other",
        scatter.forbids, scatter.expand, opens=True,
    ),
    Restructure(
        "lapack-loop", frozenset({"custom-call"}),
        "a right-looking factorization or substitution, one column per step",
        lapack.forbids, lapack.expand, opens=True, exact=False,
    ),
    Restructure(
        "rank-sort", frozenset({"sort"}),
        "a comparison of every pair, a count, and a selection",
        sort.forbids, sort.expand, opens=True,
    ),
    Restructure(
        "window-reduce", frozenset({"reduce-window"}),
        "a reshape and a reduce, for windows side by side",
        reduce_windows.forbids_window, reduce_windows.expand_window, exact=False,
    ),
    Restructure(
        "tree-reduce", frozenset({"reduce"}),
        "a tree of elementwise operations on slices, for a reduction to a scalar",
        reduce_windows.forbids_tree, reduce_windows.expand_tree, reduce_windows.behind, exact=False,
    ),
    Restructure(
        "unroll", frozenset({"while"}),
        "all iterations of a short loop, one after the other",
        unroll.forbids, unroll.expand, exact=False, joins=True,
    ),
    Restructure(
        "dot-reduce", frozenset({"dot"}),
        "a multiplication and a reduction",
        dot_reduce.forbids, dot_reduce.expand, opens=True, exact=False,
    ),
    Restructure(
        "dot-blocks", frozenset({"dot"}),
        "a batch of products of short blocks, and the sum over the blocks",
        dot_blocks.forbids, dot_blocks.expand, opens=True, exact=False,
    ),
    Restructure(
        "window-doubling", frozenset({"reduce-window"}),
        "shifted arrays, combined to windows of 2, 4, 8, ... elements along one dimension after the other",
        window_doubling.forbids, window_doubling.expand, exact=False,
    ),
    Restructure(
        "loop-kernel", loop_kernel.OPCODES,
        "the same kernel, by XLA's loop code generator; over one dimension where rows leave ends",
        loop_kernel.forbids, _keep, exact=False, replaces=False,
    ),
    Restructure(
        "caller-thread", caller_thread.OPCODES,
        "the same program, run by the thread that calls it instead of a worker",
        caller_thread.forbids, _keep, replaces=False, on_caller=True,
    ),
    Restructure(
        "hoist", frozenset({"while"}),
        "the same loop, reading what all iterations compute from the counter and constants from arrays",
        hoist.forbids, hoist.expand, hoist.behind, exact=False, around=True,
    ),
    Restructure(
        "pack", frozenset(pack.FUNCTIONS),
        "one array of the arguments of such functions, arithmetic for most, and slices of the results",
        pack.forbids, pack.expand, exact=False,
    ),
    Restructure(
        "unroll-by-4", frozenset({"while"}),
        "a loop of a quarter of the iterations, each four of the old ones",
        unroll_by.forbids, unroll_by.expand, exact=False,
    ),
    Restructure(
        "window-running", frozenset({"reduce-window"}),
        "a loop over the dimension of a cumulative operation, which carries what was combined so far",
        running_window.forbids, running_window.expand, exact=False,
    ),
    Restructure(
        "dot-swap", frozenset({"dot"}),
        "the product of its operands in the other order, and the result turned",
        dot_swap.forbids, dot_swap.expand, exact=False,
    ),
    Restructure(
        "sequential", sequential.OPCODES,
        "the same kernels, one after the other on one thread, instead of as XLA hands them to its workers",
        sequential.forbids, _keep, replaces=False, in_order=True,
    ),
    Restructure(
        "caller-sequential", sequential.OPCODES,
        "the same kernels, one after the other on the thread that calls the program",
        sequential.forbids_on_caller, _keep, replaces=False, on_caller=True, in_order=True,
    ),
    Restructure(
        "no-copy", carried.OPCODES,
        "what is copied: the array that the loop carries, overwritten once all that reads it has done so",
        carried.forbids, carried.expand, carried.behind, drops=True, along=carried.along,
        orders=carried.orders,
    ),
    Restructure(
        "invariants", frozenset({"while"}),
        "the same loop, reading from arrays what all iterations share: kernels, operands of products, turned",
        invariants.forbids, invariants.expand, invariants.behind, exact=False, around=True,
    ),
    Restructure(
        "dot-turned", frozenset({"dot"}),
        "a matrix by a few vectors with a row for each vector, as all that is computed of it by element",
        turned.forbids, turned.expand, opens=True, exact=False, turns=True,
        edits=turned.edits, along=turned.along,
    ),
    Restructure(
        "dot-rows", frozenset({"dot"}),
        "a multiplication and a reduction along rows, into which operands are brought first",
        along_rows.forbids, along_rows.expand, opens=True, exact=False,
    ),
    Restructure(
        "slice-reduce", frozenset({"reduce"}),
        "slices along the dimension, combined element by element, then the elements of the one that is left",
        slice_reduce.forbids, slice_reduce.expand, reduce_windows.behind, exact=False,
    ),
)  # fmt: skip
"""All rows; positions are the codes of `Decisions.restructure`."""

CODE: Final[dict[str, int]] = {row.name: code for code, row in enumerate(RESTRUCTURES)}
"""Row name -> code."""

REPLACES: Final = np.array([row.replaces for row in RESTRUCTURES], np.bool_)
"""bool [R]; rows that replace an operation, or leave it as it is."""


ON_CALLER: Final = np.array([row.on_caller for row in RESTRUCTURES], np.bool_)
"""bool [R]; rows by which a program runs on the thread that calls it."""

IN_ORDER: Final = np.array([row.in_order for row in RESTRUCTURES], np.bool_)
"""bool [R]; rows by which the kernels of a computation run one after the other."""


def dispatch_code(on_caller: bool, in_order: bool) -> int:
    """The row that says so of a program or, without its thread, of a computation; 0 for neither."""
    if not on_caller and not in_order:
        return 0
    found = np.flatnonzero((on_caller == ON_CALLER) & (in_order == IN_ORDER))
    return int(found[0])


def replacing(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Codes without those that only say how a kernel or the program is written; any shape."""
    return np.where(REPLACES[codes], codes, np.int8(0))


BY_OPCODE: Final[dict[str, tuple[int, ...]]] = {
    opcode: tuple(c for c, row in enumerate(RESTRUCTURES) if opcode in row.opcodes)
    for opcode in sorted({o for row in RESTRUCTURES for o in row.opcodes})
}
"""Opcode -> codes of the rows that replace it."""

RULES: Final[dict[str, str]] = {
    "other-operation": "the row replaces other operations",
    "control-dependency": "another instruction is ordered against it",
    "stays-fused": "it or an operand must stay inside a fusion",
    "layout": "an array is not row-major",
    **caller_thread.RULES,
    **carried.RULES,
    **loop_kernel.RULES,
    **hoist.RULES,
    **invariants.RULES,
    **lapack.RULES,
    **pack.RULES,
    **dot_blocks.RULES,
    **dot_reduce.RULES,
    **dot_swap.RULES,
    **scatter.RULES,
    **sequential.RULES,
    **window_doubling.RULES,
    **sort.RULES,
    **along_rows.RULES,
    **slice_reduce.RULES,
    **turned.RULES,
    **unroll.RULES,
    **unroll_by.RULES,
    **reduce_windows.RULES,
    **running_window.RULES,
}
"""Rule name -> message, for all rules that forbid a restructure."""
