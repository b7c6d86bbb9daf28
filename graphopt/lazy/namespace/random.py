"""Random numbers from explicit keys or from a generator; numbers do not depend on the tier.

A generator holds one key and counts its draws. The count is a scalar parameter of the graph, so that
drawing again compiles nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Aval, Node, Op, aval_of
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record, scalar

__all__ = """Generator key split fold_in seed default_generator uniform normal randint bernoulli
    permutation categorical exponential gamma truncated_normal choice""".split()


def _wrapped(data: Any, count: Any) -> Any:
    key = jax.random.wrap_key_data(data)
    return jax.random.fold_in(key, count.astype(jnp.uint32))


def _draw_rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
    shape, dtype = params[0], params[1]
    return None, aval_of(shape, dtypes.from_numpy(dtype), avals[0].device)


def _draw(name: str, function: Callable[..., Any]) -> Op:
    """A draw with parameters (shape, dtype, ...); arrays: key data uint32 [2], count [], operands."""

    def run(data: Any, count: Any, *rest: Any) -> Any:
        return function(_wrapped(data, count), *rest)

    return Op(f"random_{name}", run, None, _draw_rule)


_OPS: Final[dict[str, Op]] = {
    "uniform": _draw("uniform", lambda key, shape, dtype: jax.random.uniform(key, shape, dtype)),
    "normal": _draw("normal", lambda key, shape, dtype: jax.random.normal(key, shape, dtype)),
    "truncated_normal": _draw(
        "truncated_normal",
        lambda key, low, high, shape, dtype: jax.random.truncated_normal(
            key, low, high, shape, dtype
        ),
    ),
    "exponential": _draw("exponential", lambda key, shape, dtype: jax.random.exponential(key, shape, dtype)),
    "gamma": _draw("gamma", lambda key, a, shape, dtype: jax.random.gamma(key, a, shape, dtype)),
    "randint": _draw(
        "randint",
        lambda key, low, high, shape, dtype: jax.random.randint(key, shape, low, high, dtype),
    ),
    "permutation": _draw(
        "permutation",
        lambda key, shape, dtype: jax.random.permutation(key, shape[0]).astype(dtype),
    ),
    "categorical": _draw(
        "categorical",
        lambda key, logits, shape, dtype: jax.random.categorical(
            key, logits, axis=-1, shape=shape
        ).astype(dtype),
    ),
    "key": _draw("key", lambda key, shape, dtype: jax.random.key_data(key)),
    "split": _draw(
        "split", lambda key, shape, dtype: jax.random.key_data(jax.random.split(key, shape[0]))
    ),
}  # fmt: skip


def key(seed: int) -> Any:
    """A key: uint32 [2]. Use each key once; make new ones with `split` or `fold_in`."""
    return recorder.new_tensor(operands.from_numpy(_key_data(seed), None, copy=False))


def _key_data(seed: int) -> np.ndarray[Any, Any]:
    return np.asarray([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def split(key: Any, num: int = 2) -> Any:
    """New keys: uint32 [num, 2]."""
    node = _key_node(key)
    count = scalar(0, dtypes.uint32, node.aval.device)
    return record(_OPS["split"], (node, count), ((int(num), 2), np.dtype(np.uint32)))


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number (a Python number or an integer tensor)."""
    node = _key_node(key)
    count = operands.cast(_number(data, node, dtypes.uint32), dtypes.uint32)
    return record(_OPS["key"], (node, count), ((2,), np.dtype(np.uint32)))


def _number(value: Any, like: Node, dtype: DType) -> Node:
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return scalar(value, dtype, like.aval.device)
    return operands.node_of(value, "random")


def _key_node(key: Any) -> Node:
    node = operands.node_of(key, "random")
    if node.aval.dtype is not dtypes.uint32 or node.aval.shape != (2,):
        raise LazyTypeError(
            what=f"{node.aval!r} as a random key",
            where=source_lines.line_of(source_lines.here()),
            fix="Make keys with lt.random.key, split or fold_in.",
        )
    return node


class Generator:
    """A source of random numbers with a state that advances by itself.

    Attributes:
        draws: how many draws were made; may be set, to go back or to continue a saved run.
    """

    def __init__(self, seed: int) -> None:
        self._data = _key_data(seed)
        self._key: Node | None = None  # made by the first draw: it needs jax's devices
        self._lock = threading.Lock()
        self.draws = 0

    def next(self) -> tuple[Node, Node]:
        """Key and count of the next draw."""
        with self._lock:
            self.draws += 1
            count = self.draws
            if self._key is None:
                self._key = operands.from_numpy(self._data, None, copy=False)
        # Never 0 or 1, which would be constants and compile the first draws apart.
        return self._key, scalar(count + 1, dtypes.uint32, self._key.aval.device)


default_generator = Generator(0)
"""What draws where neither a key nor a generator is named; `seed` replaces it."""


def seed(seed: int) -> None:
    """Restarts the default generator."""
    global default_generator
    default_generator = Generator(seed)


def _source(key: Any) -> tuple[Node, Node]:
    if key is None:
        return default_generator.next()
    if isinstance(key, Generator):
        return key.next()
    node = _key_node(key)
    return node, scalar(0, dtypes.uint32, node.aval.device)


def _float(dtype: Any) -> Any:
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else dtypes.as_dtype(dtype)
    if wanted.kind != "float":
        raise LazyTypeError(
            what=f"random numbers of dtype {wanted}",
            where=source_lines.line_of(source_lines.here()),
            fix="Use a real floating-point dtype.",
        )
    return wanted.np


def _plain(name: str, shape: Any, key: Any, dtype: Any) -> Any:
    return record(_OPS[name], _source(key), (operands.shape_of(shape, name), dtype))


def uniform(
    shape: Any = (), low: Any = 0.0, high: Any = 1.0, *, key: Any = None, dtype: Any = None
) -> Any:
    """Uniform numbers in [low, high).

    Args:
        shape: of the result.
        low: lower end, a number or a tensor.
        high: upper end.
        key: a key or a `Generator`; None for the default generator.
        dtype: real floating-point; else the default one.
    """
    x = _plain("uniform", shape, key, _float(dtype))
    return x if (low, high) == (0.0, 1.0) else x * (high - low) + low


def normal(
    shape: Any = (), mean: Any = 0.0, std: Any = 1.0, *, key: Any = None, dtype: Any = None
) -> Any:
    """Normal numbers; arguments as in `uniform`."""
    x = _plain("normal", shape, key, _float(dtype))
    return x if (mean, std) == (0.0, 1.0) else x * std + mean


def exponential(shape: Any = (), *, key: Any = None, dtype: Any = None) -> Any:
    """Exponential numbers of rate 1."""
    return _plain("exponential", shape, key, _float(dtype))


def truncated_normal(
    lower: float, upper: float, shape: Any = (), *, key: Any = None, dtype: Any = None
) -> Any:
    """Standard normal numbers in [lower, upper]."""
    wanted = _float(dtype)
    nodes = _source(key)
    device = nodes[0].aval.device
    ends = [scalar(float(v), dtypes.from_numpy(wanted), device) for v in (lower, upper)]
    lengths = operands.shape_of(shape, "truncated_normal")
    return record(_OPS["truncated_normal"], (*nodes, *ends), (lengths, wanted))


def gamma(a: Any, shape: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Gamma numbers of shape parameter `a` (a number or a tensor)."""
    wanted = _float(dtype)
    nodes = _source(key)
    parameter = operands.cast(
        _number(a, nodes[0], dtypes.from_numpy(wanted)), dtypes.from_numpy(wanted)
    )
    lengths = parameter.aval.shape if shape is None else operands.shape_of(shape, "gamma")
    return record(_OPS["gamma"], (*nodes, parameter), (lengths, wanted))


def randint(low: int, high: int, shape: Any = (), *, key: Any = None, dtype: Any = None) -> Any:
    """Integers in [low, high).

    Raises:
        LazyValueError: an empty range.
    """
    wanted = dtypes.DEFAULT_INT if dtype is None else dtypes.as_dtype(dtype)
    if high <= low:
        raise LazyValueError(
            what=f"randint from {low} to {high}",
            where=source_lines.line_of(source_lines.here()),
            fix="Give an upper end above the lower one.",
        )
    nodes = _source(key)
    ends = [scalar(int(v), wanted, nodes[0].aval.device) for v in (low, high)]
    return record(
        _OPS["randint"], (*nodes, *ends), (operands.shape_of(shape, "randint"), wanted.np)
    )


def bernoulli(p: Any = 0.5, shape: Any = (), *, key: Any = None) -> Any:
    """True with probability `p`."""
    return _plain("uniform", shape, key, _float(None)) < p


def permutation(n: int, *, key: Any = None) -> Any:
    """The numbers below `n` in random order: int64 [n]."""
    return _plain("permutation", (int(n),), key, np.dtype(np.int64))


def categorical(logits: Any, *, key: Any = None) -> Any:
    """Indices drawn with these unnormalised log probabilities along the last axis."""
    node = operands.node_of(logits, "categorical")
    if not node.aval.shape:
        raise LazyValueError(
            what="categorical of a tensor without axes",
            where=source_lines.line_of(source_lines.here()),
            fix="Give the classes an axis.",
        )
    params = (node.aval.shape[:-1], np.dtype(np.int64))
    return record(_OPS["categorical"], (*_source(key), node), params)


def choice(n: int, shape: Any = (), *, key: Any = None) -> Any:
    """Numbers below `n`, drawn with replacement."""
    return randint(0, n, shape, key=key)
