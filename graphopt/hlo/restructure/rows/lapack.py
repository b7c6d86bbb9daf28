"""Small factorizations and triangular solves as loops, in place of calls into LAPACK.

XLA:CPU hands ``cholesky``, ``lu`` and ``triangular_solve`` to LAPACK by custom calls, which no
native region can contain. For small matrices the right-looking algorithms below, one column per
step, take about as long as the call. LAPACK's matrices are column-major; the loops work on the
transposed row-major ones, so that a column is contiguous. Results agree to rounding. As with
LAPACK, parts of a matrix that the factorization does not define stay as they were, and ``info``
names the first bad pivot; unlike with LAPACK, the factor is filled with what arithmetic gives after
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from graphopt.hlo.module.layouts import memory_order
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, array_shape

MAX_ORDER: Final = 48
"""Largest matrix dimension: beyond, LAPACK's blocked code wins clearly."""

RULES: Final = {
    "not-lapack": "the custom call is none that is known",
    "lapack-type": "only real matrices of float32 or float64",
    "lapack-size": "a matrix dimension is zero or too large",
    "lapack-layout": "a matrix is not column-major, or a batch not row-major",
    "lapack-options": "these options of the call are not handled",
}

_TARGET: Final = re.compile(r"lapack_[sd](potrf|getrf|trsm)_ffi")
_OPTION: Final = re.compile(r"(\w+) = (\d+) : ui8")
_LOWER, _UPPER, _LEFT, _RIGHT, _UNIT, _PLAIN = b"LULRUN"


def _options(instruction: Any) -> dict[str, int]:
    return {k: int(v) for k, v in _OPTION.findall(instruction.backend_config.decode())}


def forbids(candidate: Candidate) -> str | None:
    """Why a custom call cannot become a loop."""
    match = _TARGET.fullmatch(candidate.instruction.custom_call_target)
    if match is None:
        return "not-lapack"
    matrices = [candidate.operand_shape(i) for i in range(len(candidate.operands))]
    shape = candidate.shape
    matrices.append(shape.tuple_shapes[0] if shape.element_type == DType.TUPLE else shape)
    for matrix in matrices:
        if matrix.element_type not in (DType.F32, DType.F64):
            return "lapack-type"
        if not min(matrix.dimensions) >= 1 or max(matrix.dimensions[-2:]) > MAX_ORDER:
            return "lapack-size"
        if not _is_column_major(matrix):
            return "lapack-layout"
    options = _options(candidate.instruction)
    if match[1] == "potrf" and options.get("uplo") != _LOWER:
        return "lapack-options"
    if match[1] == "trsm" and set(options) != {"diag", "side", "trans_x", "uplo"}:
        return "lapack-options"
    return None


def _is_column_major(shape: Any) -> bool:
    rank = len(shape.dimensions)
    wanted = [rank - 2, rank - 1, *range(rank - 3, -1, -1)]
    return rank >= 2 and memory_order(shape) == [d for d in wanted if shape.dimensions[d] != 1]


def expand(site: Site) -> Value:
    """Writes the loop for one call; a batch becomes an outer loop."""
    match = _TARGET.fullmatch(site.instruction.custom_call_target)
    assert match is not None  # `forbids`
    block, operands = site.block, site.operands
    overwritten = {int(a.operand_index) for a in site.instruction.output_operand_aliasing}
    target = 1 if match[1] == "trsm" else 0
    if target not in overwritten:
        operands[target] = block.copy(operands[target])
    flat = [_flat(block, x) for x in operands]
    batch = flat[0].dims[0]
    one = _ONE[match[1]](_options(site.instruction))
    if batch == 1:
        results = one(block, [block.bitcast(x, x.dims[1:]) for x in flat])
        results = [block.bitcast(r, (1, *r.dims)) for r in results]
    else:
        results = _batched(block, flat, target, batch, one)
    shape = site.instruction.shape
    if shape.element_type != DType.TUPLE:
        return _shaped(block, results[0], shape)
    parts = zip(results, shape.tuple_shapes, strict=True)
    return block.tuple([_shaped(block, r, s) for r, s in parts])


def _flat(block: Block, x: Value) -> Value:
    """A batch of column-major matrices as row-major [batch, columns, rows]."""
    *batch, rows, columns = x.dims
    return block.add("bitcast", array_shape(x.dtype, (prod(batch), columns, rows)), (x,))


def _shaped(block: Block, x: Value, shape: Any) -> Value:
    return block.add("bitcast", shape, (x,))


_Kernel = Callable[[Block, list[Value]], list[Value]]


def _batched(
    block: Block, flat: Sequence[Value], target: int, batch: int, one: _Kernel
) -> list[Value]:
    """Runs `one` for every matrix; results other than the target start as zeros."""
    columns, rows = flat[0].dims[1:]
    extra = [(min(rows, columns),), ()] if one.__name__ == "lu" else [()]
    extra = [] if one.__name__ == "solve" else extra
    fresh = [block.full(DType.S32, 0, (batch, *dims)) for dims in extra]
    others = [x for i, x in enumerate(flat) if i != target]

    def step(inner: Block, b: Value, carried: list[Value]) -> list[Value]:
        """One matrix of the batch."""
        results, rest = carried[: 1 + len(fresh)], carried[1 + len(fresh) :]
        zero = inner.constant(DType.S32, 0)

        def pick(x: Value) -> Value:
            part = inner.dynamic_slice(x, [b, zero, zero], (1, *x.dims[1:]))
            return inner.bitcast(part, x.dims[1:])

        operands = [pick(x) for x in rest]
        operands.insert(target, pick(results[0]))
        new = one(inner, operands)
        return [
            *(
                inner.dynamic_update_slice(
                    x, inner.bitcast(n, (1, *n.dims)), [b] + [zero] * len(n.dims)
                )
                for x, n in zip(results, new, strict=True)
            ),
            *rest,
        ]

    return block.loop(batch, [flat[target], *fresh, *others], step)[: 1 + len(fresh)]


def _at(block: Block, x: Value, row: Value | None, column: Value | None) -> Value:
    """A row, a column (as vectors) or an element of a matrix."""
    zero = block.constant(DType.S32, 0)
    sizes = [x.dims[0] if row is None else 1, x.dims[1] if column is None else 1]
    part = block.dynamic_slice(x, [row or zero, column or zero], sizes)
    if row is not None and column is not None:
        return block.bitcast(part, ())
    return block.bitcast(part, (prod(sizes),))


def _cholesky(_: dict[str, int]) -> _Kernel:
    def cholesky(block: Block, operands: list[Value]) -> list[Value]:
        """Lower factor; row k of the working matrix is column k of the factor."""
        order = operands[0].dims[0]
        square = (order, order)

        def step(b: Block, j: Value, carried: list[Value]) -> list[Value]:
            """Column j of the factor, and what it changes in those to its right."""
            a, info = carried
            pivot = _at(b, a, j, j)
            root = b.op("sqrt", pivot)
            column = _at(b, a, j, None)
            where = b.iota((order,), 0)
            here = b.broadcast(j, (order,))
            scaled = b.op("divide", column, b.broadcast(root, (order,)))
            factor = b.op("select", b.compare("GE", where, here), scaled, column)
            rows, columns = b.iota(square, 0), b.iota(square, 1)
            here = b.broadcast(j, square)
            along = b.broadcast(factor, square, [1])
            product = b.op("multiply", b.broadcast(factor, square, [0]), along)
            inside = b.op("and", b.compare("GT", rows, here), b.compare("GE", columns, rows))
            new = b.op("select", inside, b.op("subtract", a, product), a)
            new = b.op("select", b.compare("EQ", rows, here), along, new)
            good = b.compare("GT", pivot, b.constant(a.dtype, 0))
            return [new, _first_bad(b, info, good, j)]

        info = block.copy(block.constant(DType.S32, 0))
        return block.loop(order, [operands[0], info], step)

    return cholesky


def _first_bad(block: Block, info: Value, good: Value, j: Value) -> Value:
    """``info`` after step j: the number of the first step, from 1, that was not good."""
    number = block.op("add", j, block.constant(DType.S32, 1))
    fresh = block.op("select", good, block.constant(DType.S32, 0), number)
    was = block.compare("NE", info, block.constant(DType.S32, 0))
    return block.op("select", was, info, fresh)


def _lu(_: dict[str, int]) -> _Kernel:
    def lu(block: Block, operands: list[Value]) -> list[Value]:
        """Both factors with partial pivoting; returns them, the row exchanges from 1, and info."""
        columns, rows = operands[0].dims
        steps = min(columns, rows)
        dtype = operands[0].dtype
        largest, first = block.function("maximum", dtype), block.function("minimum", DType.S32)

        def step(b: Block, j: Value, carried: list[Value]) -> list[Value]:
            """Pivot and column j, and what they change in the columns to the right."""
            a, pivots, info = carried
            column = _at(b, a, j, None)
            chosen = _pivot(b, column, j, largest, first)
            upper, lower = _at(b, a, None, chosen), _at(b, a, None, j)
            pivot, swapped_in = _at(b, a, j, chosen), _at(b, a, j, j)
            zero = b.constant(dtype, 0)
            bad = b.compare("EQ", pivot, zero)
            divisor = b.op("select", bad, b.constant(dtype, 1), pivot)
            where = b.iota((rows,), 0)
            exchanged = b.op(
                "select", b.compare("EQ", where, b.broadcast(chosen, (rows,))),
                b.broadcast(swapped_in, (rows,)), column,
            )  # fmt: skip
            multipliers = b.op("divide", exchanged, b.broadcast(divisor, (rows,)))
            new = _eliminated(b, a, j, chosen, upper, lower, multipliers)
            number = b.op("add", chosen, b.constant(DType.S32, 1))
            pivots = b.dynamic_update_slice(pivots, b.bitcast(number, (1,)), [j])
            good = b.compare("NE", pivot, zero)
            return [new, pivots, _first_bad(b, info, good, j)]

        pivots = block.full(DType.S32, 0, (steps,))
        info = block.copy(block.constant(DType.S32, 0))
        return block.loop(steps, [operands[0], pivots, info], step)

    return lu


def _pivot(b: Block, column: Value, j: Value, largest: int, first: int) -> Value:
    """Row of the largest magnitude at or below j; j itself if there is none (not a number)."""
    rows, dtype = column.dims[0], column.dtype
    where, here = b.iota((rows,), 0), b.broadcast(j, (rows,))
    none = b.full(dtype, -1, (rows,))
    size = b.op("select", b.compare("GE", where, here), b.op("abs", column), none)
    top = b.reduce(size, b.constant(dtype, -1), [0], largest, dtype)
    is_top = b.compare("EQ", size, b.broadcast(top, (rows,)))
    place = b.op("select", is_top, where, b.full(DType.S32, rows, (rows,)))
    found = b.reduce(place, b.constant(DType.S32, rows), [0], first, DType.S32)
    exists = b.compare("LT", found, b.constant(DType.S32, rows))
    return b.op("select", exists, found, j)


def _eliminated(
    b: Block, a: Value, j: Value, chosen: Value, upper: Value, lower: Value, multipliers: Value
) -> Value:
    """Rows j and `chosen` exchanged, multipliers stored in column j, the rest reduced by them."""
    dims = a.dims
    columns, rows = b.iota(dims, 0), b.iota(dims, 1)
    here, there = b.broadcast(j, dims), b.broadcast(chosen, dims)
    top = b.broadcast(upper, dims, [0])
    new = b.op("select", b.compare("EQ", rows, there), b.broadcast(lower, dims, [0]), a)
    new = b.op("select", b.compare("EQ", rows, here), top, new)
    along = b.broadcast(multipliers, dims, [1])
    reduced = b.op("subtract", new, b.op("multiply", top, along))
    below = b.compare("GT", rows, here)
    inside = b.op("and", below, b.compare("GT", columns, here))
    new = b.op("select", inside, reduced, new)
    in_column = b.op("and", below, b.compare("EQ", columns, here))
    return b.op("select", in_column, along, new)


def _solve(options: dict[str, int]) -> _Kernel:
    left = options["side"] == _LEFT
    plain = options["trans_x"] == _PLAIN
    # From the right, the transposed matrix is solved for the transposed unknown.
    transposed = plain != left
    ascending = (options["uplo"] == _LOWER) != transposed
    unit = options["diag"] == _UNIT

    def solve(block: Block, operands: list[Value]) -> list[Value]:
        """Substitution, one unknown per step; reduces all later right-hand sides by it."""
        order = operands[0].dims[0]
        dims = operands[1].dims
        along = 1 if left else 0

        def step(b: Block, k: Value, carried: list[Value]) -> list[Value]:
            """One unknown of every right-hand side."""
            x, a = carried
            j = k if ascending else b.op("subtract", b.constant(DType.S32, order - 1), k)
            known = _at(b, x, None, j) if left else _at(b, x, j, None)
            if not unit:
                pivot = _at(b, a, j, j)
                known = b.op("divide", known, b.broadcast(pivot, known.dims))
            column = _at(b, a, None, j) if transposed else _at(b, a, j, None)
            place, here = b.iota(dims, along), b.broadcast(j, dims)
            known_all = b.broadcast(known, dims, [1 - along])
            product = b.op("multiply", b.broadcast(column, dims, [along]), known_all)
            later = b.compare("GT" if ascending else "LT", place, here)
            new = b.op("select", later, b.op("subtract", x, product), x)
            return [b.op("select", b.compare("EQ", place, here), known_all, new), a]

        return [block.loop(order, [operands[1], operands[0]], step)[0]]

    return solve


_ONE: Final[dict[str, Callable[[dict[str, int]], _Kernel]]] = {
    "potrf": _cholesky, "getrf": _lu, "trsm": _solve,
}  # fmt: skip
"""LAPACK routine -> the loop for one matrix, given the call's options."""
