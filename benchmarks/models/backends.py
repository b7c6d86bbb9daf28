"""The operations that models consist of, by jax and by PyTorch, with the same weights.

Images and sequences are channels last in jax (or first, as ported programs have them) and channels first in
PyTorch. Tokens are [batch, tokens, features] in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LETTERS = {1: "W", 2: "HW"}


class Jax:
    """Operations of a model, traced by jax.

    Attributes:
        training: batch normalisations use the statistics of the batch.
        first: channels of images and sequences stand in front.
    """

    def __init__(self, weights: Iterator[Any] | None, training: bool, first: bool = False) -> None:
        """`weights` in the order in which the model asks for them; without, they are recorded."""
        self._weights = weights
        self.shapes: list[tuple[int, ...]] = []
        self.training = training
        self.first = first

    def weight(self, *shape: int) -> Any:
        """The next array of weights; a vector is a bias."""
        self.shapes.append(shape)
        return jnp.zeros(shape, jnp.float32) if self._weights is None else next(self._weights)

    def image(self, x: Any) -> Any:
        """An input that is given channels last."""
        return jnp.moveaxis(x, -1, 1) if self.first else x

    def channels(self, x: Any) -> int:
        """Of an image or a sequence."""
        return int(x.shape[1 if self.first else -1])

    def conv(
        self, x: Any, out: int, window: int, stride: int = 1, groups: int = 1, spread: int = 1
    ) -> Any:
        """Padded to keep its size at stride 1; no bias."""
        letters = LETTERS[x.ndim - 2]
        w = self.weight(*(window for _ in letters), self.channels(x) // groups, out)
        reach = spread * (window - 1) // 2
        image, kernel = f"N{letters}C", f"{letters}IO"
        if self.first:
            image, kernel = f"NC{letters}", f"OI{letters}"
            w = jnp.moveaxis(w, (-1, -2), (0, 1))
        return lax.conv_general_dilated(
            x, w, (stride,) * len(letters), [(reach, reach)] * len(letters),
            rhs_dilation=(spread,) * len(letters), feature_group_count=groups,
            dimension_numbers=(image, kernel, image),
        )  # fmt: skip

    def doubled(self, x: Any, out: int) -> Any:
        """A transposed convolution, window 2 and stride 2."""
        w = self.weight(2, 2, self.channels(x), out)
        names = ("NCHW", "HWIO", "NCHW") if self.first else ("NHWC", "HWIO", "NHWC")
        return lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=names)

    def joined(self, *parts: Any) -> Any:
        """Channels of several arrays."""
        return jnp.concatenate(parts, 1 if self.first else -1)

    def _row(self, w: Any, x: Any) -> Any:
        return w.reshape((-1, *(1,) * (x.ndim - 2))) if self.first else w

    def bias(self, x: Any) -> Any:
        """One per channel."""
        return x + self._row(self.weight(self.channels(x)), x)

    def batch_norm(self, x: Any) -> Any:
        """By statistics of the batch, or by known ones."""
        count = self.channels(x)
        scale, bias, mean, spread = (self._row(self.weight(count), x) for _ in range(4))
        variance = 1.0 + spread * spread
        if self.training:
            axes = (0, *range(2, x.ndim)) if self.first else tuple(range(x.ndim - 1))
            mean = jnp.mean(x, axes, keepdims=True)
            variance = jnp.var(x, axes, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * (1.0 + scale) + bias

    def channel_norm(self, x: Any) -> Any:
        """Layer normalisation of the channels of each place."""
        axis = 1 if self.first else -1
        return self._normed(x, axis)

    def layer_norm(self, x: Any) -> Any:
        """Of the features of each token."""
        return self._normed(x, -1)

    def _normed(self, x: Any, axis: int) -> Any:
        scale, bias = self.weight(x.shape[axis]), self.weight(x.shape[axis])
        if axis == 1:
            scale, bias = self._row(scale, x), self._row(bias, x)
        mean, var = jnp.mean(x, axis, keepdims=True), jnp.var(x, axis, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-5) * (1.0 + scale) + bias

    def dense(self, x: Any, out: int) -> Any:
        """Features of tokens, with bias."""
        w, b = self.weight(x.shape[-1], out), self.weight(out)
        return x @ w + b

    def max_pool(self, x: Any, window: int, stride: int, reach: int) -> Any:
        """Of images."""
        one, no = (1, 1), ((0, 0), (0, 0))
        dims = (*one, window, window) if self.first else (1, window, window, 1)
        steps = (*one, stride, stride) if self.first else (1, stride, stride, 1)
        pads = ((reach, reach),) * 2
        pads = (*no, *pads) if self.first else (no[0], *pads, no[0])
        return lax.reduce_window(x, -jnp.inf, lax.max, dims, steps, pads)

    def pooled(self, x: Any, keepdims: bool = False) -> Any:
        """The mean of all places."""
        axes = tuple(range(2, x.ndim)) if self.first else tuple(range(1, x.ndim - 1))
        return jnp.mean(x, axes, keepdims=keepdims)

    def halves(self, x: Any) -> list[Any]:
        """The first half of the channels, and the second."""
        return jnp.split(x, 2, 1 if self.first else -1)

    def tokens(self, x: Any) -> Any:
        """Places of an image or a sequence as tokens."""
        x = jnp.moveaxis(x, 1, -1) if self.first else x
        return x.reshape(x.shape[0], -1, x.shape[-1])

    def patches(self, x: Any, size: int) -> Any:
        """An image in squares, as tokens."""
        x = jnp.moveaxis(x, 1, -1) if self.first else x
        n, h, w, c = x.shape
        x = x.reshape(n, h // size, size, w // size, size, c).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(n, -1, size * size * c)

    def heads(self, x: Any, count: int) -> Any:
        """[n, t, f] -> [n, heads, t, f / heads]."""
        n, t, f = x.shape
        return x.reshape(n, t, count, f // count).transpose(0, 2, 1, 3)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        """[n, heads, t, d] each -> [n, t, heads * d]."""
        scores = jnp.einsum("nhqd,nhkd->nhqk", q, k) / math.sqrt(q.shape[-1])
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        mixed = jnp.einsum("nhqk,nhkd->nhqd", jax.nn.softmax(scores), v).transpose(0, 2, 1, 3)
        return mixed.reshape(*mixed.shape[:2], -1)

    def embedded(self, ids: Any, rows: int, features: int) -> Any:
        """Rows of a table, and places."""
        table, places = self.weight(rows, features), self.weight(ids.shape[1], features)
        return jnp.take(table, ids, axis=0) + places

    def placed(self, x: Any) -> Any:
        """Tokens and where they stand."""
        return x + self.weight(*x.shape[1:])

    relu = staticmethod(jax.nn.relu)
    relu6 = staticmethod(jax.nn.relu6)
    silu = staticmethod(jax.nn.silu)
    sigmoid = staticmethod(jax.nn.sigmoid)
    tanh = staticmethod(jnp.tanh)

    @staticmethod
    def gelu(x: Any) -> Any:
        """By the error function, as PyTorch's."""
        return jax.nn.gelu(x, approximate=False)


def weights_of(model: Any, x: np.ndarray[Any, Any], training: bool) -> list[np.ndarray[Any, Any]]:
    """Random weights for a model, scaled by what they sum over."""
    recorder = Jax(None, training)
    jax.eval_shape(lambda v: model(recorder, v), x)
    rng = np.random.default_rng(0)
    found = []
    for shape in recorder.shapes:
        scale = 0.1 if len(shape) == 1 else math.prod(shape[:-1]) ** -0.5
        found.append((scale * rng.normal(size=shape)).astype(np.float32))
    return found
