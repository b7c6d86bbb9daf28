"""The same operations by PyTorch, which the caller imports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Torch:
    """Operations of a model in PyTorch, channels first; see `benchmarks.models.backends.Jax`."""

    def __init__(self, torch: Any, weights: Iterator[Any], training: bool) -> None:
        """`weights` as `turned` leaves them."""
        self._t, self._f, self._weights = torch, torch.nn.functional, weights
        self.training = training
        self.relu, self.relu6, self.silu = self._f.relu, self._f.relu6, self._f.silu
        self.sigmoid, self.tanh, self.gelu = torch.sigmoid, torch.tanh, self._f.gelu

    def _vector(self) -> Any:
        return next(self._weights)

    def image(self, x: Any) -> Any:
        return x.movedim(-1, 1).contiguous()

    def channels(self, x: Any) -> int:
        return int(x.shape[1])

    def conv(
        self, x: Any, out: int, window: int, stride: int = 1, groups: int = 1, spread: int = 1
    ) -> Any:
        fn = self._f.conv1d if x.ndim == 3 else self._f.conv2d
        reach = spread * (window - 1) // 2
        return fn(x, next(self._weights), None, stride, reach, spread, groups)

    def doubled(self, x: Any, out: int) -> Any:
        # jax does not turn the window around, PyTorch does.
        w = next(self._weights).transpose(0, 1).flip(-1, -2)
        return self._f.conv_transpose2d(x, w, stride=2)

    def joined(self, *parts: Any) -> Any:
        return self._t.cat(parts, 1)

    def _row(self, x: Any) -> Any:
        return self._vector().reshape((-1, *(1,) * (x.ndim - 2)))

    def bias(self, x: Any) -> Any:
        return x + self._row(x)

    def batch_norm(self, x: Any) -> Any:
        scale, bias, mean, spread = (self._vector() for _ in range(4))
        if self.training:
            return self._f.batch_norm(x, None, None, 1.0 + scale, bias, True)
        return self._f.batch_norm(x, mean, 1.0 + spread * spread, 1.0 + scale, bias)

    def channel_norm(self, x: Any) -> Any:
        return self.layer_norm(x.movedim(1, -1)).movedim(-1, 1)

    def layer_norm(self, x: Any) -> Any:
        scale, bias = self._vector(), self._vector()
        return self._f.layer_norm(x, x.shape[-1:], 1.0 + scale, bias)

    def dense(self, x: Any, out: int) -> Any:
        w, b = next(self._weights), self._vector()
        return self._f.linear(x, w.T, b)

    def max_pool(self, x: Any, window: int, stride: int, reach: int) -> Any:
        return self._f.max_pool2d(x, window, stride, reach)

    def pooled(self, x: Any, keepdims: bool = False) -> Any:
        return x.mean(tuple(range(2, x.ndim)), keepdim=keepdims)

    def halves(self, x: Any) -> Any:
        return x.chunk(2, 1)

    def tokens(self, x: Any) -> Any:
        return x.flatten(2).transpose(1, 2)

    def patches(self, x: Any, size: int) -> Any:
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // size, size, w // size, size).permute(0, 2, 4, 3, 5, 1)
        return x.reshape(n, -1, size * size * c)

    def heads(self, x: Any, count: int) -> Any:
        n, t, f = x.shape
        return x.reshape(n, t, count, f // count).transpose(1, 2)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        mixed = self._f.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return mixed.transpose(1, 2).flatten(2)

    def embedded(self, ids: Any, rows: int, features: int) -> Any:
        table, places = next(self._weights), next(self._weights)
        return self._f.embedding(ids.long(), table) + places

    def placed(self, x: Any) -> Any:
        return x + next(self._weights)


def turned(torch: Any, weights: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Weights as PyTorch has them: windows of convolutions behind their channels."""
    found = []
    for w in weights:
        if w.ndim > 2:
            w = np.moveaxis(w, (-1, -2), (0, 1))
        found.append(torch.from_numpy(np.ascontiguousarray(w)))
    return found
