"""Linear algebra (array API standard, extension ``linalg`` and "Linear algebra functions")."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.namespace.statistics import _sum_dtype
from graphopt.lazy.ops.arrays import OPS as ARRAY
from graphopt.lazy.ops.linalg import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import parts, record, record2

__all__ = """cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power
    matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
    vector_norm""".split()


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Complex eigenvalues in no order, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Orthonormal and upper triangular factor."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """Sign of the determinant and logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, adjoint of the right ones."""

    U: Any
    S: Any
    Vh: Any


def _fail(what: str, fix: str, kind: Any = LazyValueError) -> Exception:
    return kind(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)  # type: ignore[no-any-return]


def _matrix(x: Any, name: str, square: bool = False) -> Node:
    node = operands.node_of(x, name)
    shape = node.aval.shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise _fail(f"{name} of {node.aval!r}", f"Pass {kind} (the last two axes).")
    return node


def _floating(x: Any, name: str, square: bool = False) -> Node:
    node = _matrix(x, name, square)
    if not node.aval.dtype.is_float:
        node = operands.cast(node, dtypes.DEFAULT_FLOAT)
    return node


def matmul(x1: Any, x2: Any, /) -> Any:
    """Matrix product; leading axes broadcast."""
    return record2(ARRAY["matmul"], operands.node_of(x1, "matmul"), operands.node_of(x2, "matmul"))


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged."""
    node = _matrix(x, "matrix_transpose")
    n = len(node.aval.shape)
    return record(ARRAY["permute_dims"], (node,), ((*range(n - 2), n - 1, n - 2),))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sums of products over pairs of axes."""
    a, b = operands.node_of(x1, "tensordot"), operands.node_of(x2, "tensordot")
    if isinstance(axes, int):
        n = len(a.aval.shape)
        if not 0 <= axes <= min(n, len(b.aval.shape)):
            raise _fail(f"tensordot over {axes} axes", "Give at most as many axes as there are.")
        pairs = tuple(range(n - axes, n)), tuple(range(axes))
    else:
        first, second = axes
        one = isinstance(first, int)
        pairs = (
            operands.axes_of((first,) if one else tuple(first), len(a.aval.shape), "tensordot"),
            operands.axes_of((second,) if one else tuple(second), len(b.aval.shape), "tensordot"),
        )
    return record(ARRAY["tensordot"], (a, b), (pairs,))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Dot products of vectors along an axis; the first operand is conjugated."""
    a, b = operands.node_of(x1, "vecdot"), operands.node_of(x2, "vecdot")
    shortest = min(len(a.aval.shape), len(b.aval.shape))
    if not -shortest <= axis < max(shortest, 1) or (
        axis >= 0 and len(a.aval.shape) != len(b.aval.shape)
    ):
        raise _fail(f"vecdot of {a.aval!r} and {b.aval!r} along {axis}", "Use a negative axis.")
    if a.aval.shape[axis] != b.aval.shape[axis]:
        raise _fail(f"vecdot of {a.aval!r} and {b.aval!r}", "Make the vectors equally long.")
    return record(ARRAY["vecdot"], (a, b), (int(axis),))


def outer(x1: Any, x2: Any, /) -> Any:
    """All products of the elements of two vectors."""
    a, b = operands.node_of(x1, "outer"), operands.node_of(x2, "outer")
    if len(a.aval.shape) != 1 or len(b.aval.shape) != 1:
        raise _fail(f"outer of {a.aval!r} and {b.aval!r}", "Pass vectors.")
    column = record(ARRAY["reshape"], (a,), ((a.aval.size, 1),))
    row = record(ARRAY["reshape"], (b,), ((1, b.aval.size),))
    return column * row


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross products of vectors of three elements along an axis."""
    a, b = operands.node_of(x1, "cross"), operands.node_of(x2, "cross")
    shortest = min(len(a.aval.shape), len(b.aval.shape))
    if not -shortest <= axis < shortest or (a.aval.shape[axis], b.aval.shape[axis]) != (3, 3):
        raise _fail(f"cross of {a.aval!r} and {b.aval!r}", "Pass vectors of three elements.")
    dtype = dtypes.PROMOTION[a.aval.dtype, b.aval.dtype]
    nodes = [operands.cast(n, dtype) for n in (a, b)]
    from graphopt.lazy.namespace.manipulation import broadcast_arrays

    x, y = broadcast_arrays(*map(recorder.hold, nodes))
    where = axis if axis < 0 else axis - len(a.aval.shape)
    return record(OPS["cross"], (x._node, y._node), (where,))


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """Triangular factor of positive definite matrices, read from their lower triangle."""
    return record(OPS["cholesky"], (_floating(x, "cholesky", True),), (bool(upper),))


def det(x: Any, /) -> Any:
    """Determinant."""
    return record(OPS["det"], (_floating(x, "det", True),))


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Diagonal of matrices."""
    return record(ARRAY["diagonal"], (_matrix(x, "diagonal"),), (int(offset),))


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of general matrices."""
    return EigResult(*parts(record(OPS["eig"], (_floating(x, "eig", True),))))


def eigvals(x: Any, /) -> Any:
    """Eigenvalues of general matrices."""
    return record(OPS["eigvals"], (_floating(x, "eigvals", True),))


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices, read from their lower triangle."""
    return EighResult(*parts(record(OPS["eigh"], (_floating(x, "eigh", True),))))


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of Hermitian matrices, ascending."""
    return record(OPS["eigvalsh"], (_floating(x, "eigvalsh", True),))


def inv(x: Any, /) -> Any:
    """Inverse; of singular matrices, NaN or infinity."""
    return record(OPS["inv"], (_floating(x, "inv", True),))


def matrix_power(x: Any, n: int, /) -> Any:
    """Integer power of square matrices."""
    node = _matrix(x, "matrix_power", True)
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        from graphopt.lazy.namespace.creation import eye
        from graphopt.lazy.namespace.manipulation import broadcast_to

        one = eye(node.aval.shape[-1], dtype=node.aval.dtype, device=node.aval.device)
        return broadcast_to(one, node.aval.shape)
    result, base = None, recorder.hold(node)
    while n:
        if n & 1:
            result = base if result is None else matmul(result, base)
        n >>= 1
        if n:
            base = matmul(base, base)
    return result


def _singular_norm(x: Any, order: Any) -> Any:
    from graphopt.lazy.namespace import statistics

    values = svdvals(x)
    if order == "nuc":
        return statistics.sum(values, axis=-1)
    return (statistics.max if order == 2 else statistics.min)(values, axis=-1)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norm of matrices: ``fro``, ``nuc``, 1, 2, inf and the negatives of the last three.

    Raises:
        LazyValueError: another `ord`.
    """
    from graphopt.lazy.namespace import statistics
    from graphopt.lazy.namespace.elementwise import FUNCTIONS
    from graphopt.lazy.namespace.manipulation import reshape

    node = _floating(x, "matrix_norm")
    x = recorder.hold(node)
    if ord is None or ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        result = _singular_norm(x, ord)
        return reshape(result, (*result.shape, 1, 1)) if keepdims else result
    if ord not in (1, -1, np.inf, -np.inf):
        raise _fail(f"matrix_norm with ord={ord!r}", "Use fro, nuc, 1, 2, inf or their negatives.")
    sums = statistics.sum(FUNCTIONS["abs"](x), axis=-2 if abs(ord) == 1 else -1, keepdims=True)
    pick = statistics.max if ord > 0 else statistics.min
    return pick(sums, axis=(-2, -1), keepdims=keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norm of vectors along axes; without any, of all elements."""
    node = operands.node_of(x, "vector_norm")
    if not node.aval.dtype.is_float:
        node = operands.cast(node, dtypes.DEFAULT_FLOAT)
    axes = operands.axes_of(axis, len(node.aval.shape), "vector_norm")
    return record(OPS["vector_norm"], (node,), (axes, bool(keepdims), float(ord)))


def _tolerance(x: Any, rtol: Any) -> Any:
    """A tolerance as a parameter: a number, or None for the default."""
    if rtol is None:
        return None
    return float(rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """Number of singular values above `rtol` times the largest; a tensor `rtol` is observed."""
    node = _floating(x, "matrix_rank")
    if getattr(rtol, "shape", ()):
        from graphopt.lazy.namespace import searching, statistics

        values = svdvals(x)
        largest = statistics.max(values, axis=-1, keepdims=True)
        return searching.count_nonzero(values > largest * rtol[..., None], axis=-1)
    return record(OPS["matrix_rank"], (node,), (_tolerance(x, rtol),))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Pseudo-inverse, without singular values below `rtol` times the largest."""
    node = _floating(x, "pinv")
    if getattr(rtol, "shape", ()):
        return _pinv_by_matrix(x, rtol)
    return record(OPS["pinv"], (node,), (_tolerance(x, rtol),))


def _pinv_by_matrix(x: Any, rtol: Any) -> Any:
    from graphopt.lazy.namespace import searching, statistics
    from graphopt.lazy.namespace.elementwise import FUNCTIONS

    u, s, vh = svd(x, full_matrices=False)
    keep = s > statistics.max(s, axis=-1, keepdims=True) * rtol[..., None]
    inverse = searching.where(keep, 1 / searching.where(keep, s, 1.0), 0.0)
    conj = FUNCTIONS["conj"]
    return matmul(conj(vh).mT * inverse[..., None, :], conj(u).mT)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """QR decomposition, ``reduced`` or ``complete``."""
    if mode not in ("reduced", "complete"):
        raise _fail(f"qr with mode={mode!r}", "Use reduced or complete.")
    return QRResult(*parts(record(OPS["qr"], (_floating(x, "qr"),), (mode,))))


def slogdet(x: Any, /) -> SlogdetResult:
    """Sign and logarithm of the magnitude of the determinant."""
    return SlogdetResult(*parts(record(OPS["slogdet"], (_floating(x, "slogdet", True),))))


def solve(x1: Any, x2: Any, /) -> Any:
    """Solution of linear systems ``x1 @ y = x2``; `x2` is a vector or stack of matrices."""
    a = _floating(x1, "solve", True)
    b = operands.node_of(x2, "solve")
    dtype = dtypes.PROMOTION[a.aval.dtype, b.aval.dtype]
    if not dtype.is_float:
        raise _fail("solve of integers", "Use a floating-point dtype.", LazyTypeError)
    rows = b.aval.shape[0] if len(b.aval.shape) == 1 else (b.aval.shape or (0, 0))[-2]
    if rows != a.aval.shape[-1]:
        raise _fail(f"solve({a.aval!r}, {b.aval!r})", "Give as many rows as the matrix has.")
    return record(OPS["solve"], (operands.cast(a, dtype), operands.cast(b, dtype)))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular value decomposition."""
    return SVDResult(*parts(record(OPS["svd"], (_floating(x, "svd"),), (bool(full_matrices),))))


def svdvals(x: Any, /) -> Any:
    """Singular values, descending."""
    return record(OPS["svdvals"], (_floating(x, "svdvals"),))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sum of the diagonal; small integers are added up as 64-bit ones."""
    node = _matrix(x, "trace")
    wanted = _sum_dtype(node.aval.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return record(OPS["trace"], (operands.cast(node, wanted),), (int(offset), wanted.np))
