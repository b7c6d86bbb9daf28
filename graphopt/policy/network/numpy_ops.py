"""Array functions of the numpy network, quick from some hundred rows up, on the calling thread alone.

XLA calls the hook with its own threads at work, and the user's program may have others: a small matrix
product that waits for a second core is then much slower than one that does not.

Axis letters: N nodes, E edges, H hidden width, K and M widths of a product.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array = NDArray[Any]
"""float32 throughout."""

FORBIDDEN: Final = np.float32(-1e9)

_ON_ONE_CORE: Final = 1 << 18
"""Multiplications up to which OpenBLAS keeps a product on the calling thread."""

_CHUNK: Final = 8
"""Attention segments computed at once: their scores stay in cache."""

_SAFE: Final = 60.0
"""Scores within it need no shift before they are exponentiated: no sum over- or underflows."""

_ONE_BY_ONE: Final = 8
"""Members of a group that are combined one after the other, over all groups at once."""


def product(x: Array, kernel: Array) -> Array:
    """`x @ kernel`, [N, K] and [K, M], in blocks of rows that are small enough for one core."""
    rows = max(1, _ON_ONE_CORE // kernel.size)
    if len(x) < rows:
        found: Array = np.matmul(x, kernel)
        return found
    whole = len(x) // rows * rows
    out = np.empty((len(x), kernel.shape[1]), np.float32)
    if whole:
        blocks = x[:whole].reshape(-1, rows, x.shape[1])
        np.matmul(blocks, kernel, out=out[:whole].reshape(-1, rows, out.shape[1]))
    if whole < len(x):
        np.matmul(x[whole:], kernel, out=out[whole:])
    return out


def relu(x: Array) -> Array:
    """Changes `x` in place."""
    np.maximum(x, np.float32(0.0), out=x)
    return x


def log_softmax(logits: Array) -> Array:
    """Log-probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def norm(x: Array, scale: Array, bias: Array) -> Array:
    """Layer normalisation over the last axis, [N, H]."""
    centred: Array = x - np.einsum("nh->n", x)[:, None] / np.float32(x.shape[-1])
    centred *= _inverse_deviation(np.einsum("nh,nh->n", centred, centred), x.shape[-1])
    centred *= scale
    centred += bias
    return centred


Folded = tuple[Array, Array]
"""A kernel [K, M] and a bias [M] in which a normalisation's scale, bias and mean are."""


def folded(scale: Array, bias: Array, kernel: Array) -> Folded:
    """What `normed_product` takes for ``norm(x, scale, bias) @ kernel``; the kernel has fewer rows than x."""
    scaled = scale[:, None] * kernel
    scaled -= scaled.mean(axis=0)
    return scaled, bias @ kernel


def normed_product(x: Array, by: Folded) -> Array:
    """``norm(x, scale, bias) @ kernel``, see `folded`."""
    width = np.float32(x.shape[-1])
    mean = np.einsum("nh->n", x) / width
    squares = np.einsum("nh,nh->n", x, x) - width * mean * mean
    out = product(x * _inverse_deviation(np.maximum(squares, 0.0), x.shape[-1]), by[0])
    out += by[1]
    return out


def _inverse_deviation(squares: Array, width: int) -> Array:
    inverse: Array = 1.0 / np.sqrt(squares / np.float32(width) + np.float32(1e-6))
    return inverse[:, None]


def attend(qkv: Array, heads: int, length: int) -> Array:
    """Each segment of `length` nodes attends to itself and the one before; [N, 3H] -> [N, H]."""
    count, width = len(qkv), qkv.shape[1] // (3 * heads)
    segments = -(-count // length)
    absent = segments * length - count
    split = np.zeros((3, heads, (segments + 1) * length, width), np.float32)  # one of zeros before
    split[:, :, length : length + count] = qkv.reshape(count, 3, heads, width).transpose(1, 2, 0, 3)
    split[0] *= np.float32(1.0 / math.sqrt(width))
    queries = split[0, :, length:].reshape(heads, segments, length, width)
    keys, values = (_pairs(part, segments, length) for part in split[1:])
    out = np.empty((heads, segments, length, width), np.float32)
    for begin in range(0, segments, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        scores = queries[:, part] @ keys[:, part].swapaxes(-1, -2)
        shifts = max(scores.max(), -scores.min()) > _SAFE
        if begin == 0:
            scores[:, 0, :, :length] = FORBIDDEN
        if absent and begin + _CHUNK >= segments:
            scores[:, -1, :, 2 * length - absent :] = FORBIDDEN
        if shifts:
            scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = np.einsum("hsij->hsi", scores)[..., None]
        np.divide(scores @ values[:, part], total, out=out[:, part])
    return out.transpose(1, 2, 0, 3).reshape(segments * length, -1)[:count]


def _pairs(x: Array, segments: int, length: int) -> Array:
    """[heads, nodes, width] as [heads, segments, 2 * length, width]: each segment after the one before."""
    heads, _, width = x.shape
    head, row, item = x.strides
    shape = (heads, segments, 2 * length, width)
    return as_strided(x, shape, (head, length * row, row, item), writeable=False)


class Groups:
    """Rows of an array combined into one row per group: numpy's `reduceat` is slow on short groups.

    The groups are sorted by size, so that the k-th members of all groups that have one are combined with a
    prefix of the result, `_ONE_BY_ONE` times; what is left of the few large groups is reduced by itself.
    """

    def __init__(self, members: NDArray[np.int32], ids: NDArray[np.int32], count: int) -> None:
        """Sorts the groups.

        Args:
            members: [E]; a row of what is to be reduced.
            ids: [E]; the group that it belongs to, ascending.
            count: number of groups, empty ones too.
        """
        sizes = np.bincount(ids, minlength=count)
        starts = np.cumsum(sizes) - sizes
        by_size = np.argsort(-sizes, kind="stable")
        filled = np.searchsorted(-sizes[by_size], -np.arange(_ONE_BY_ONE + 1))
        self.inverse = (1.0 / np.maximum(sizes, 1)).astype(np.float32)[:, None]
        self._count = count
        self._order = by_size[: filled[0]]
        firsts = starts[by_size]
        self._ranks = [members[firsts[:some] + k] for k, some in enumerate(filled[:-1]) if some]
        large = by_size[: filled[-1]]
        self._rest = np.concatenate(
            [members[:0], *(members[starts[i] + _ONE_BY_ONE : starts[i] + sizes[i]] for i in large)]
        )
        left = sizes[large] - _ONE_BY_ONE
        self._rest_starts = np.cumsum(left) - left

    def reduce(self, x: Array, combine: np.ufunc) -> Array:
        """`combine` over each group's members; [rows, H] -> [groups, H], 0 for empty groups."""
        out = np.zeros((self._count, x.shape[1]), np.float32)
        if not self._ranks:
            return out
        found = x.take(self._ranks[0], axis=0)
        for rank in self._ranks[1:]:
            head = found[: len(rank)]
            combine(head, x.take(rank, axis=0), out=head)
        if len(self._rest):
            head = found[: len(self._rest_starts)]
            rest = combine.reduceat(x.take(self._rest, axis=0), self._rest_starts, axis=0)
            combine(head, rest, out=head)
        out[self._order] = found
        return out
