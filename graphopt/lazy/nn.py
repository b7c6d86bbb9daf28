"""Building blocks of neural networks, as functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.lazy.array.indexing import check_range
from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.node import Op
from graphopt.lazy.errors import LazyValueError
from graphopt.lazy.namespace import random, searching, statistics
from graphopt.lazy.namespace.elementwise import FUNCTIONS
from graphopt.lazy.ops.arrays import OPS as ARRAY
from graphopt.lazy.ops.elementwise import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.composites import composite
from graphopt.lazy.record.recorder import record, record1
from graphopt.lazy.record.tensor_base import TensorBase

__all__ = """relu leaky_relu elu gelu silu sigmoid softplus softmax log_softmax logsumexp one_hot
    layer_norm rms_norm batch_norm linear conv max_pool avg_pool dropout embedding
    cross_entropy mse_loss scaled_dot_product_attention einsum""".split()

_LOGISTIC: Final = OPS["logistic"]
_node_of: Final = operands.node_of


def _fail(what: str, fix: str) -> Exception:
    return LazyValueError(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)


@composite()
def relu(x: Any, /) -> Any:
    """max(x, 0)."""
    return FUNCTIONS["maximum"](x, 0)


@composite("slope")
def leaky_relu(x: Any, /, slope: float = 0.01) -> Any:
    """x where positive, slope * x elsewhere."""
    return searching.where(x > 0, x, x * slope)


@composite("alpha")
def elu(x: Any, /, alpha: float = 1.0) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere."""
    return searching.where(x > 0, x, alpha * FUNCTIONS["expm1"](FUNCTIONS["minimum"](x, 0)))


def sigmoid(x: Any, /) -> Any:
    """1 / (1 + exp(-x))."""
    return record1(_LOGISTIC, x._node if isinstance(x, TensorBase) else _node_of(x, "sigmoid"))


@composite()
def silu(x: Any, /) -> Any:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


@composite()
def softplus(x: Any, /) -> Any:
    """log(1 + exp(x))."""
    return FUNCTIONS["logaddexp"](x, 0)


@composite()
def gelu(x: Any, /, *, approximate: bool = True) -> Any:
    """Gaussian error linear unit (Hendrycks and Gimpel, arXiv 1606.08415), by tanh or by erf."""
    if approximate:
        inner = (x + 0.044715 * (x * x * x)) * math.sqrt(2 / math.pi)
        return 0.5 * x * (1 + FUNCTIONS["tanh"](inner))
    return 0.5 * x * (1 + FUNCTIONS["erf"](x * math.sqrt(0.5)))


@composite()
def logsumexp(x: Any, /, *, axis: Any = -1, keepdims: bool = False) -> Any:
    """log of the sum of exp along axes, without overflow."""
    peak = _peak(x, axis)
    total = statistics.sum(FUNCTIONS["exp"](x - peak), axis=axis, keepdims=True)
    result = FUNCTIONS["log"](total) + peak
    return result if keepdims else _drop(result, axis)


def _drop(x: Any, axis: Any) -> Any:
    axes = operands.axes_of(axis, x.ndim, "logsumexp")
    return record(ARRAY["squeeze"], (x._node,), (axes,))


def _peak(x: Any, axis: Any) -> Any:
    """The largest value along axes, as a constant for gradients; 0 where it is infinite."""
    from graphopt.lazy.transforms.grad import stop_gradient

    peak = stop_gradient(statistics.max(x, axis=axis, keepdims=True))
    return searching.where(FUNCTIONS["isfinite"](peak), peak, 0)


@composite()
def softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """exp(x) divided by its sum along axes."""
    weights = FUNCTIONS["exp"](x - _peak(x, axis))
    return weights / statistics.sum(weights, axis=axis, keepdims=True)


@composite()
def log_softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """Logarithm of `softmax`."""
    shifted = x - _peak(x, axis)
    exp, log = FUNCTIONS["exp"], FUNCTIONS["log"]
    return shifted - log(statistics.sum(exp(shifted), axis=axis, keepdims=True))


def one_hot(labels: Any, classes: int, /, *, dtype: Any = None) -> Any:
    """1 at each label, 0 elsewhere: shape [..., classes]."""
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else dtypes.as_dtype(dtype)
    return _one_hot(labels, classes=int(classes), dtype=wanted.name)


@composite()
def _one_hot(labels: Any, *, classes: int, dtype: str) -> Any:
    from graphopt.lazy.namespace import creation, manipulation, types

    wanted = dtypes.by_name(dtype)
    numbers = creation.arange(classes, dtype=labels.dtype, device=labels.device)
    return types.astype(manipulation.expand_dims(labels, axis=-1) == numbers, wanted)


@composite("weight", "bias", "eps")
def layer_norm(
    x: Any, /, weight: Any = None, bias: Any = None, *, axis: Any = -1, eps: float = 1e-5
) -> Any:
    """Normalised to mean 0 and variance 1 along axes, then scaled and shifted."""
    centred = x - statistics.mean(x, axis=axis, keepdims=True)
    variance = statistics.mean(centred * centred, axis=axis, keepdims=True)
    return _affine(centred * FUNCTIONS["rsqrt"](variance + eps), weight, bias)


@composite("weight", "eps")
def rms_norm(x: Any, /, weight: Any = None, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """Divided by the root of the mean square along axes, then scaled."""
    square = statistics.mean(x * x, axis=axis, keepdims=True)
    return _affine(x * FUNCTIONS["rsqrt"](square + eps), weight, None)


@composite("weight", "bias", "eps")
def batch_norm(
    x: Any, mean: Any, var: Any, /, weight: Any = None, bias: Any = None, *, eps: float = 1e-5
) -> Any:
    """Normalised by given statistics, which broadcast against `x`."""
    return _affine((x - mean) * FUNCTIONS["rsqrt"](var + eps), weight, bias)


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@composite("bias")
def linear(x: Any, weight: Any, /, bias: Any = None) -> Any:
    """``x @ weight + bias``; weight [in, out]."""
    return _affine(x @ weight, None, bias)


def _windows(value: Any, count: int, name: str) -> tuple[int, ...]:
    found = (value,) * count if isinstance(value, int) else tuple(int(v) for v in value)
    if len(found) != count:
        raise _fail(f"{name}={value!r} for {count} axes", "Give one number per spatial axis.")
    return found


def _padding(padding: Any, count: int) -> Any:
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise _fail(f"padding={padding!r}", 'Use "same", "valid", or numbers.')
        return padding.upper()
    if isinstance(padding, int):
        return ((padding, padding),) * count
    pairs = tuple((p, p) if isinstance(p, int) else (int(p[0]), int(p[1])) for p in padding)
    if len(pairs) != count:
        raise _fail(f"padding={padding!r} for {count} axes", "Give one pair per spatial axis.")
    return pairs


def _conv(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    n = x.ndim - 2
    letters = "DHW"[3 - n :]
    layout = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    return lax.conv_general_dilated(
        x, w, strides, padding, rhs_dilation=dilation, dimension_numbers=layout,
        feature_group_count=groups,
    )  # fmt: skip


def _pool(kind: str) -> Any:
    def pool(x: Any, window: Any, strides: Any, padding: Any) -> Any:
        whole, steps = (1, *window, 1), (1, *strides, 1)
        pads = padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, whole, steps, pads)
        total = lax.reduce_window(x, 0.0, lax.add, whole, steps, pads)
        count = lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, whole, steps, pads)
        return total / count

    return pool


_OPS: Final[dict[str, Op]] = {
    "conv": Op("conv", _conv),
    "max_pool": Op("max_pool", _pool("max")),
    "avg_pool": Op("avg_pool", _pool("avg")),
}


def conv(
    x: Any, weight: Any, /, bias: Any = None, *, strides: Any = 1, padding: Any = "valid",
    dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    """Convolution over one to three spatial axes.

    Args:
        x: [batch, *spatial, channels in].
        weight: [*kernel, channels in / groups, channels out].
        bias: [channels out] or None.
        strides: one number, or one per spatial axis.
        padding: ``"same"``, ``"valid"``, one number, or one number or pair per spatial axis.
        dilation: distance of kernel elements.
        groups: independent groups of channels.

    Returns:
        [batch, *spatial, channels out].
    """
    a, w = operands.node_of(x, "conv"), operands.node_of(weight, "conv")
    n = len(a.aval.shape) - 2
    if n not in (1, 2, 3) or len(w.aval.shape) != n + 2:
        raise _fail(f"conv of {a.aval!r} with {w.aval!r}", "Use [N, *spatial, C] and [*K, C, O].")
    dtype = dtypes.PROMOTION[a.aval.dtype, w.aval.dtype]
    params = (
        _windows(strides, n, "strides"), _padding(padding, n), _windows(dilation, n, "dilation"),
        int(groups),
    )  # fmt: skip
    return _affine(
        record(_OPS["conv"], (operands.cast(a, dtype), operands.cast(w, dtype)), params), None, bias
    )


def _pooled(name: str, x: Any, window: Any, strides: Any, padding: Any) -> Any:
    node = operands.node_of(x, name)
    n = len(node.aval.shape) - 2
    if n < 1 or not node.aval.dtype.is_float:
        raise _fail(f"{name} of {node.aval!r}", "Pass floats [batch, *spatial, channels].")
    sizes = _windows(window, n, "window")
    steps = sizes if strides is None else _windows(strides, n, "strides")
    return record(_OPS[name], (node,), (sizes, steps, _padding(padding, n)))


def max_pool(x: Any, /, window: Any, *, strides: Any = None, padding: Any = "valid") -> Any:
    """Largest value in each window of the spatial axes; strides default to the window."""
    return _pooled("max_pool", x, window, strides, padding)


def avg_pool(x: Any, /, window: Any, *, strides: Any = None, padding: Any = "valid") -> Any:
    """Mean of each window of the spatial axes (padding not counted)."""
    return _pooled("avg_pool", x, window, strides, padding)


def dropout(x: Any, rate: float, /, *, key: Any = None, deterministic: bool = False) -> Any:
    """Zeros with probability `rate`, the rest scaled up to keep the mean."""
    if deterministic or rate == 0:
        return x
    keep = random.bernoulli(1 - rate, x.shape, key=key)
    return searching.where(keep, x / (1 - rate), 0)


def embedding(table: Any, indices: Any, /) -> Any:
    """Rows of a table [entries, width] at integer indices [...]: [..., width]."""
    return table[indices]


def cross_entropy(logits: Any, labels: Any, /) -> Any:
    """Cross-entropy per example of integer labels [...] under logits [..., classes].

    Raises:
        LazyIndexError: a label out of range; where labels are pending, when a result is observed.
    """
    if not isinstance(labels, TensorBase):
        labels = recorder.hold(_node_of(labels, "cross_entropy"))
    known = labels._node.data
    if isinstance(known, np.ndarray):
        check_range(known, logits.shape[-1])
    return _cross_entropy(logits, labels)


@composite()
def _cross_entropy(logits: Any, labels: Any) -> Any:
    from graphopt.lazy.namespace import manipulation

    scores = log_softmax(logits)
    chosen = searching.take_along_axis(scores, manipulation.expand_dims(labels, axis=-1), axis=-1)
    return -manipulation.squeeze(chosen, axis=-1)


@composite()
def mse_loss(prediction: Any, target: Any, /) -> Any:
    """Mean squared error."""
    return statistics.mean(FUNCTIONS["square"](prediction - target))


def scaled_dot_product_attention(q: Any, k: Any, v: Any, /, *, mask: Any = None) -> Any:
    """Attention (Vaswani et al., arXiv 1706.03762, section 3.2.1).

    Args:
        q: [..., queries, width].
        k: [..., keys, width].
        v: [..., keys, values].
        mask: bool [..., queries, keys]; True = allowed.
    """
    return _attention(q, k, v) if mask is None else _attention(q, k, v, mask)


@composite()
def _attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = (q @ k.mT) * (1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = searching.where(mask, scores, float(dtypes.finfo_of(scores.dtype).min))
    return softmax(scores) @ v


def einsum(subscripts: str, /, *xs: Any) -> Any:
    """Sums of products in Einstein's notation, written out (``ij,jk->ik``)."""
    nodes = tuple(operands.node_of(x, "einsum") for x in xs)
    dtype = dtypes.promote(n.aval.dtype for n in nodes)
    cast: Sequence[Any] = [operands.cast(n, dtype) for n in nodes]
    return record(ARRAY["einsum"], tuple(cast), (str(subscripts),))
