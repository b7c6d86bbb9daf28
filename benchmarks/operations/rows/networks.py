"""Operations of neural networks: convolutions with their gradients, pools, normalisations, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from jax import lax

from benchmarks.operations.row import Row, normal, planes, three

IMAGES = ((1, 16, 16, 16), (4, 64, 64, 32), (8, 56, 56, 128))
"""Batch, height, width, channels."""
SEQUENCES = ((1, 128, 16), (8, 256, 64), (16, 2048, 128))
LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def _first(x: Any) -> Any:
    """Channels of an image in front."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _arranged(*arrays: Any) -> list[Any]:
    """An image and, behind it, weights, as PyTorch has them: [N, C, ...] and [O, I, ...]."""
    x, *rest = arrays
    turned = [np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1))) for w in rest]
    return [_first(x), *turned]


def convolution(stride: int = 1, groups: int = 1, dilation: int = 1) -> Callable[..., Any]:
    """A convolution, channels last, padded to keep its size at stride 1."""

    def convolve(x: Any, w: Any) -> Any:
        letters = LETTERS[x.ndim - 2]
        reach = [dilation * (n - 1) // 2 for n in w.shape[:-2]]
        return lax.conv_general_dilated(
            x, w, (stride,) * len(letters), [(r, r) for r in reach],
            rhs_dilation=(dilation,) * len(letters), feature_group_count=groups,
            dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        )  # fmt: skip

    return convolve


def _torch_convolution(stride: int, groups: int, dilation: int) -> Callable[..., Any]:
    def convolve(torch: Any, x: Any, w: Any) -> Any:
        fn = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")
        reach = [dilation * (n - 1) // 2 for n in w.shape[2:]]
        return fn(x, w, None, stride, reach, dilation, groups)

    return convolve


def _gradients(torch: Any, fn: Any, *tensors: Any) -> Any:
    """Of the sum of squares, by all tensors."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    return torch.autograd.grad((fn(torch, *leaves) ** 2).sum(), leaves)


def _with_gradients(fn: Callable[..., Any], count: int) -> Callable[..., Any]:
    return jax.grad(lambda *a: jnp.sum(fn(*a) ** 2), argnums=tuple(range(count)))


def _convolutions(
    name: str, window: tuple[int, ...], shapes: Any = IMAGES, depthwise: bool = False,
    groups: int = 1, out: float = 1.0, gradients: bool = True, **options: int,
) -> list[Row]:  # fmt: skip
    """The row of a convolution, and the one of its gradients."""
    inputs = []
    for shape in shapes:
        channels = shape[-1]
        weights = (*window, 1, channels) if depthwise else (
            *window, channels // groups, int(channels * out))  # fmt: skip
        inputs.append(normal(shape, weights))
    # Depthwise rows have the same channels at every size: groups are part of the function.
    count = shapes[0][-1] if depthwise else groups
    stride, dilation = options.get("stride", 1), options.get("dilation", 1)
    fn = convolution(stride, count, dilation)
    other = _torch_convolution(stride, count, dilation)
    rows = [Row(f"convolutions.{name}", fn, tuple(inputs), other, arranged=_arranged)]
    if gradients:
        rows.append(
            Row(f"convolutions.{name}, gradients", _with_gradients(fn, 2), tuple(inputs),
                lambda T, x, w: _gradients(T, other, x, w), arranged=_arranged)
        )  # fmt: skip
    return rows


DEPTHWISE = ((1, 16, 16, 64), (4, 56, 56, 64), (16, 112, 112, 64))
DEPTHWISE_1D = ((1, 64, 64), (8, 256, 64), (16, 4096, 64))
STEM = ((1, 32, 32, 3), (2, 128, 128, 3), (4, 224, 224, 3))
VOLUMES = ((1, 8, 8, 8, 8), (1, 16, 32, 32, 16), (2, 32, 64, 64, 32))
PICTURES = ((1, 32, 32, 1), (4, 256, 256, 1), (8, 512, 512, 1))
FIELDS = ((1, 16, 16, 16, 1), (1, 48, 48, 48, 1), (2, 96, 96, 96, 1))
BATCHES = ((1, 16, 16, 16), (4, 32, 32, 32), (8, 40, 40, 48))
STEPS = 3
"""Of gradient descent in a loop."""


def _last_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[0], shape[-1], *shape[1:-1]


def _descent(name: str, window: tuple[int, ...], shapes: Any, first: bool = False) -> Row:
    """Gradient descent of a layer's weights in a loop, as training steps in `lax.scan` do it."""
    letters = LETTERS[len(window)]
    layout, kernel = ("NC" + letters, "OI" + letters) if first else (f"N{letters}C", f"{letters}IO")
    inputs = tuple(
        normal(_last_first(s) if first else s, (s[-1], s[-1], *window) if first else
               (*window, s[-1], s[-1]), scale=0.1)
        for s in shapes
    )  # fmt: skip

    def loss(w: Any, x: Any) -> Any:
        made = lax.conv_general_dilated(
            x, w, (1,) * len(window), "SAME", dimension_numbers=(layout, kernel, layout)
        )
        return jnp.mean(jnp.tanh(made) ** 2)

    def descend(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, w: w - jax.grad(loss)(w, x), w)

    def torch_descend(torch: Any, x: Any, w: Any) -> Any:
        convolve = getattr(torch.nn.functional, f"conv{len(window)}d")
        for _ in range(STEPS):
            w = w.detach().requires_grad_()
            lost = (torch.tanh(convolve(x, w, padding="same")) ** 2).mean()
            w = w - torch.autograd.grad(lost, w)[0]
        return w.detach()

    order = ", channels first" if first else ""
    return Row(f"convolutions.{name}, descent in a loop{order}", descend, inputs, torch_descend,
               arranged=(lambda *a: a) if first else _arranged)  # fmt: skip


def _transposed(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


CONVOLUTIONS: tuple[Row, ...] = (
    *_convolutions("3x3", (3, 3)),
    *_convolutions("1x1", (1, 1)),
    *_convolutions("3x3, stride 2", (3, 3), stride=2),
    *_convolutions("5x5", (5, 5), gradients=False),
    *_convolutions("1x1 to twice the channels", (1, 1), out=2.0, gradients=False),
    *_convolutions("7x7 of three channels, stride 2", (7, 7), STEM, out=64 / 3, stride=2),
    *_convolutions("3x3 of three channels", (3, 3), STEM, out=16 / 3, gradients=False),
    *_convolutions("3x3, dilation 2", (3, 3), dilation=2, gradients=False),
    *_convolutions("3x3, 4 groups", (3, 3), groups=4),
    *_convolutions("depthwise 3x3", (3, 3), DEPTHWISE, depthwise=True),
    *_convolutions("depthwise 3x3, stride 2", (3, 3), DEPTHWISE, depthwise=True, stride=2),
    *_convolutions("depthwise 7x7", (7, 7), DEPTHWISE, depthwise=True, gradients=False),
    *_convolutions("3 of sequences", (3,), SEQUENCES),
    *_convolutions("9 of sequences", (9,), SEQUENCES, gradients=False),
    *_convolutions("depthwise 7 of sequences", (7,), DEPTHWISE_1D, depthwise=True),
    *_convolutions("3x3x3", (3, 3, 3), VOLUMES),
    *_convolutions("3x3x3, stride 2", (3, 3, 3), VOLUMES, stride=2),
    *_convolutions("3x3x3 of one channel", (3, 3, 3), FIELDS),
    *_convolutions("5x5 of one channel", (5, 5), PICTURES),
    _descent("3x3", (3, 3), BATCHES),
    _descent("3x3", (3, 3), BATCHES, first=True),
    _descent("5 of sequences", (5,), ((1, 128, 16), (8, 256, 32), (16, 512, 64))),
    _descent("3x3x3", (3, 3, 3), ((1, 8, 8, 8, 8), (1, 12, 12, 12, 16), (1, 16, 24, 24, 16))),
    Row("convolutions.transposed 2x2, stride 2", _transposed,
        tuple(normal(s, (2, 2, s[-1], s[-1])) for s in IMAGES),
        lambda T, x, w: T.nn.functional.conv_transpose2d(x, w, stride=2),
        arranged=lambda x, w: [_first(x), np.ascontiguousarray(np.moveaxis(w, (2, 3), (0, 1)))]),
    Row("convolutions.convolve 64 taps", lambda x, w: jnp.convolve(x, w, "same"),
        tuple(normal((n,), (64,)) for n in (1_000, 16_384, 262_144)),
        lambda T, x, w: T.nn.functional.conv1d(x[None, None], w.flip(0)[None, None], padding=32)),
)  # fmt: skip


def _pool(name: str, fn: Any, torch: Any, count: int = 1, shapes: Any = IMAGES) -> Row:
    return Row(f"pools.{name}", fn, three(normal, shapes, count), torch, arranged=_arranged)


def _max_pool(torch: Any, x: Any) -> Any:
    return torch.nn.functional.max_pool2d(x, 2)


def _max_pool_3(torch: Any, x: Any) -> Any:
    return torch.nn.functional.max_pool2d(x, 3, 2, 1)


def _mean_pool(torch: Any, x: Any) -> Any:
    return torch.nn.functional.avg_pool2d(x, 3, 1, 1)


def _pool_3(x: Any) -> Any:
    return linen.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


def _mean_3(x: Any) -> Any:
    return linen.avg_pool(x, (3, 3), (1, 1), "SAME")


def _pool_2(x: Any) -> Any:
    return linen.max_pool(x, (2, 2), (2, 2))


def _channels_first(name: str, size: int, stride: int, along: int, shapes: Any, torch: Any) -> Row:
    """The gradient of a pool along the last dimensions."""
    window, step = ((*[1] * (len(shapes[0]) - along), *[n] * along) for n in (size, stride))

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, window, step, "VALID")

    return Row(
        f"pools.{name}, channels first, gradient", _with_gradients(pool, 1),
        three(normal, [_last_first(shape) for shape in shapes]),
        lambda T, x: _gradients(T, torch, x),
    )  # fmt: skip


POOLS: tuple[Row, ...] = (
    _pool("maximum 2x2", _pool_2, _max_pool),
    _pool("maximum 2x2, gradient", _with_gradients(_pool_2, 1),
          lambda T, x: _gradients(T, _max_pool, x)),
    _pool("maximum 3x3, stride 2", _pool_3, _max_pool_3),
    _pool("maximum 3x3, stride 2, gradient", _with_gradients(_pool_3, 1),
          lambda T, x: _gradients(T, _max_pool_3, x)),
    _pool("mean 3x3, stride 1", _mean_3, _mean_pool),
    _pool("mean 3x3, stride 1, gradient", _with_gradients(_mean_3, 1),
          lambda T, x: _gradients(T, _mean_pool, x)),
    _pool("mean 2x2", lambda x: linen.avg_pool(x, (2, 2), (2, 2)),
          lambda T, x: T.nn.functional.avg_pool2d(x, 2)),
    _pool("mean of all places", lambda x: jnp.mean(x, (1, 2)), lambda T, x: T.mean(x, (2, 3))),
    _pool("maximum of sequences", lambda x: linen.max_pool(x, (4,), (4,)),
          lambda T, x: T.nn.functional.max_pool1d(x, 4), shapes=SEQUENCES),
    _channels_first("maximum 2x2", 2, 2, 2, IMAGES, _max_pool),
    _channels_first("maximum 3x3, stride 2", 3, 2, 2, IMAGES,
                    lambda T, x: T.nn.functional.max_pool2d(x, 3, 2)),
    _channels_first("maximum of sequences", 4, 4, 1, SEQUENCES,
                    lambda T, x: T.nn.functional.max_pool1d(x, 4)),
)  # fmt: skip

HEADS = ((1, 16, 2, 8), (8, 256, 4, 16), (4, 1024, 8, 64))


def _heads_first(*arrays: Any) -> list[Any]:
    return [np.ascontiguousarray(np.swapaxes(x, 1, 2)) for x in arrays]


def _attention(causal: bool) -> Row:
    return Row(
        f"networks.attention{', causal' if causal else ''}",
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal),
        three(normal, HEADS, 3),
        lambda T, q, k, v: T.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        arranged=_heads_first,
    )


def _layer_norm(x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def _torch_layer_norm(torch: Any, x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _batch_norm(x: Any) -> Any:
    mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def _cross_entropy(x: Any) -> Any:
    return -jnp.mean(jax.nn.log_softmax(x, 1)[:, 0])


def _torch_cross_entropy(torch: Any, x: Any) -> Any:
    zeros = torch.zeros(x.shape[0], dtype=torch.int64)
    return torch.nn.functional.cross_entropy(x, zeros)


NETWORKS: tuple[Row, ...] = (
    Row("networks.softmax", jax.nn.softmax, planes(), lambda T, x: T.softmax(x, -1)),
    Row("networks.log_softmax", jax.nn.log_softmax, planes(), lambda T, x: T.log_softmax(x, -1)),
    Row("networks.softmax of columns", lambda x: jax.nn.softmax(x, 0), planes(),
        lambda T, x: T.softmax(x, 0)),
    Row("networks.softmax, gradient", _with_gradients(jax.nn.softmax, 1), planes(),
        lambda T, x: _gradients(T, lambda T, x: T.softmax(x, -1), x)),
    Row("networks.layer norm", _layer_norm, planes(), _torch_layer_norm),
    Row("networks.layer norm, gradient", _with_gradients(_layer_norm, 1), planes(),
        lambda T, x: _gradients(T, _torch_layer_norm, x)),
    Row("networks.rms norm", lambda x: x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5),
        planes(), lambda T, x: T.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5)),
    Row("networks.batch norm", _batch_norm, three(normal, IMAGES),
        lambda T, x: T.nn.functional.batch_norm(x, None, None, training=True), arranged=_arranged),
    Row("networks.standardize", jax.nn.standardize, planes(), _torch_layer_norm),
    Row("networks.cross entropy", _cross_entropy, planes(), _torch_cross_entropy),
    Row("networks.cross entropy, gradient", jax.grad(_cross_entropy), planes(),
        lambda T, x: T.autograd.grad(_torch_cross_entropy(T, x.requires_grad_()), x)),
    Row("networks.glu", jax.nn.glu, planes(), lambda T, x: T.nn.functional.glu(x)),
    _attention(False), _attention(True),
)  # fmt: skip

ROWS = (*CONVOLUTIONS, *POOLS, *NETWORKS)
