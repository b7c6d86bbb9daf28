"""Functions that are recorded as one operation: the values, gradients and graphs of what they consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphopt.lazy as lt
from graphopt.lazy.namespace import elementwise
from graphopt.lazy.record import recorder, traces
from graphopt.lazy.record.composites import composite
from graphopt.lazy.runtime import compiling

UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "relu": jax.nn.relu,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.01),
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "gelu": jax.nn.gelu,
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "layer_norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "rms_norm": lambda x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6),
}  # fmt: skip

ARRAYS = st.tuples(st.integers(0, 10_000), st.sampled_from([(4,), (3, 5), (2, 3, 4), (1, 1)])).map(
    lambda pair: np.random.default_rng(pair[0]).normal(size=pair[1]).astype(np.float32) * 2
)
LIMITED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    traces.tree.clear()
    recorder.state.now.restart()
    lt.reset_metrics()
    yield
    lt.sync()
    compiling.background.drain()  # later tests count compiles


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", UNARY)
@given(data=ARRAYS, tier=st.sampled_from(["op-by-op", "compiled"]))
@LIMITED
def test_values_and_gradients_are_those_of_jax(name: str, data: Any, tier: str) -> None:
    lazily, reference = getattr(lt.nn, name), UNARY[name]
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(reference(x) * jnp.cos(reference(x))))(
        data
    )
    with lt.config(tier=tier):
        for _ in range(2):  # recorded, followed
            y, g = lt.value_and_grad(lambda x: lt.sum(lazily(x) * lt.cos(lazily(x))))(
                lt.asarray(data)
            )
            near(lazily(lt.asarray(data)), reference(data))
            near(y, value)
            near(g, gradient)


@given(
    data=ARRAYS,
    name=st.sampled_from(["softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm"]),
    axis=st.sampled_from([0, -1, (-1,)]),
)
@LIMITED
def test_options_are_those_of_the_function(data: Any, name: str, axis: Any) -> None:
    function = getattr(lt.nn, name)
    with lt.config(tier="op-by-op"):
        for given_axis in (axis, axis, list(axis) if isinstance(axis, tuple) else axis):
            found = np.asarray(function(lt.asarray(data), axis=given_axis))
            expected = np.asarray(function.__wrapped__(lt.asarray(data), axis=axis))
            np.testing.assert_array_equal(found, expected)


def test_operands_may_be_left_out_and_named() -> None:
    rng = np.random.default_rng(0)
    x, w, b = (lt.asarray(rng.normal(size=s).astype(np.float32)) for s in ((3, 4), (4,), (4,)))
    norm = lt.nn.layer_norm
    for _ in range(2):
        plain = norm(x)
        near(norm(x, w), plain * w)
        near(norm(x, w, b), plain * w + b)
        near(norm(x, None, b), plain + b)
        near(norm(x, bias=b), plain + b)
        near(norm(x, weight=w, bias=b), plain * w + b)
        near(norm(x, weight=w, bias=None), plain * w)
        near(norm(x, eps=0.5), norm.__wrapped__(x, eps=0.5))
        near(norm(np.asarray(x), np.asarray(w)), plain * w)


@given(
    data=ARRAYS,
    low=st.sampled_from([None, -1.5, 0, 0.0, -0.5]),
    high=st.sampled_from([None, 1, 1.0, 0.75, 2.5]),
    tensors=st.booleans(),
)
@LIMITED
def test_clip_is_that_of_numpy(data: Any, low: Any, high: Any, tensors: bool) -> None:
    expected = np.positive(data) if low is None and high is None else np.clip(data, low, high)
    if tensors:
        low, high = (b if b is None else lt.asarray(np.float32(b)) for b in (low, high))
    for tier in ("op-by-op", "compiled"):
        with lt.config(tier=tier):
            np.testing.assert_array_equal(
                np.asarray(lt.clip(lt.asarray(data), low, high)), expected
            )
            np.testing.assert_array_equal(
                np.asarray(lt.clip(lt.asarray(data), max=high, min=low)), expected
            )


def test_clip_of_integers_keeps_their_type() -> None:
    x = lt.asarray(np.array([-300, 5, 300], np.int16))
    for low, high in ((-(10**9), 200), (-7, 10**9), (-7, 200)):
        found = np.asarray(lt.clip(x, low, high))
        assert found.dtype == np.int16
        np.testing.assert_array_equal(found, np.clip(np.array([-300, 5, 300]), low, high))


def test_other_numbers_compile_nothing() -> None:
    x = lt.asarray(np.linspace(-2, 2, 7, dtype=np.float32))
    lt.reset_metrics()
    for k in range(6):
        low, slope = -1.25 - 0.1 * k, 0.25 + 0.1 * k
        with lt.step():
            y = lt.clip(x, low, 1.5 + k) + lt.nn.leaky_relu(x, slope) + lt.nn.elu(x, alpha=slope)
        data = np.asarray(x)
        near(
            y,
            np.clip(data, low, 1.5 + k)
            + np.where(data > 0, data, data * slope)
            + np.where(data > 0, data, slope * np.expm1(data)),
        )
    assert lt.metrics().distinct_graphs == 1


def test_one_operation_is_recorded_and_many_are_run() -> None:
    x = lt.asarray(np.ones(3, np.float32))
    before = traces.tree.moves
    y = lt.nn.gelu(x)
    text = lt.show(y)
    assert "tanh" in text
    assert "gelu" not in text
    assert "test_lazy_composites.py" in text
    lt.sync()
    assert traces.tree.moves == before + 1
    assert lt.metrics().cuts[-1].nodes == 9


def _operations(loss: Any, *args: Any) -> int:
    with lt.step():
        value, grads = lt.value_and_grad(loss, argnums=tuple(range(len(args))))(*args)
    del value, grads
    return lt.metrics().cuts[-1].nodes


def test_graphs_hold_no_operation_twice() -> None:
    x = lt.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
    for name in UNARY:
        function = getattr(lt.nn, name)
        for _ in range(2):
            whole = _operations(lambda v, f=function: lt.sum(f(v)), x)
            parts = _operations(lambda v, f=function: lt.sum(f.__wrapped__(v)), x)
            assert whole <= parts, name


@given(data=ARRAYS, name=st.sampled_from(sorted(UNARY)))
@LIMITED
def test_second_derivatives_are_those_of_the_operations(data: Any, name: str) -> None:
    function = getattr(lt.nn, name)

    def twice(f: Any) -> Any:
        first = lt.grad(lambda x: lt.sum(f(x) * f(x)))
        return lt.grad(lambda x: lt.sum(first(x) * lt.sin(x)))(lt.asarray(data))

    near(twice(function), twice(function.__wrapped__))


@composite()
def _half(x: Any) -> Any:
    return x * 0.5


def test_numbers_of_composites_and_of_callers_are_kept_apart() -> None:
    data = np.random.default_rng(0).normal(size=4).astype(np.float32)
    for number in (0.5, 0.7, 0.5, -2.0):

        def loss(x: Any, number: float = number) -> Any:
            return lt.sum(_half(x) * lt.sin(x * number))

        def reference(x: Any, number: float = number) -> Any:
            return jnp.sum(0.5 * x * jnp.sin(x * number))

        near(lt.grad(loss)(lt.asarray(data)), jax.grad(reference)(data))
        second = lt.grad(lambda x, f=loss: lt.sum(lt.grad(f)(x) * lt.cos(x)))
        expected = jax.grad(lambda x, f=reference: jnp.sum(jax.grad(f)(x) * jnp.cos(x)))
        near(second(lt.asarray(data)), expected(data))
        third = lt.grad(lambda x, f=second: lt.sum(f(x) * x))
        near(third(lt.asarray(data)), jax.grad(lambda x, f=expected: jnp.sum(f(x) * x))(data))


def test_vmap_maps_composites() -> None:
    data = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    gradient = lt.vmap(lt.grad(lambda v: lt.sum(lt.nn.gelu(v) * lt.nn.softmax(v))))
    expected = jax.vmap(jax.grad(lambda v: jnp.sum(jax.nn.gelu(v) * jax.nn.softmax(v))))(data)
    for _ in range(2):
        near(gradient(lt.asarray(data)), expected)
        near(lt.vmap(lt.nn.softmax)(lt.asarray(data)), jax.nn.softmax(data))


def test_losses_and_attention_are_those_of_jax() -> None:
    rng = np.random.default_rng(0)
    logits, target = (rng.normal(size=(5, 7)).astype(np.float32) for _ in range(2))
    labels = np.array([0, 6, 3, 2, 2], np.int32)
    q, k, v = (rng.normal(size=(2, 4, 8)).astype(np.float32) for _ in range(3))
    mask = np.tril(np.ones((4, 4), bool))
    scores = -jax.nn.log_softmax(logits)[np.arange(5), labels]
    weights = jnp.where(mask, q @ k.swapaxes(1, 2) / np.sqrt(8), -jnp.inf)
    for _ in range(2):
        near(lt.nn.cross_entropy(lt.asarray(logits), lt.asarray(labels)), scores)
        near(lt.nn.cross_entropy(lt.asarray(logits), labels), scores)
        near(
            lt.nn.mse_loss(lt.asarray(logits), lt.asarray(target)), np.mean((logits - target) ** 2)
        )
        near(lt.nn.one_hot(lt.asarray(labels), 7), np.eye(7)[labels])
        assert lt.nn.one_hot(lt.asarray(labels), 7, dtype=lt.int8).dtype is lt.int8
        near(lt.std(lt.asarray(logits), axis=0, correction=1.0), logits.std(0, ddof=1))
        attended = lt.nn.scaled_dot_product_attention(
            *map(lt.asarray, (q, k, v)), mask=lt.asarray(mask)
        )
        near(attended, jax.nn.softmax(weights) @ v)


def test_labels_out_of_range_are_errors() -> None:
    logits = lt.asarray(np.zeros((2, 3), np.float32))
    for _ in range(2):
        with pytest.raises(lt.LazyIndexError):
            lt.nn.cross_entropy(logits, lt.asarray(np.array([0, 3])))
        pending = lt.asarray(np.array([0, 2])) + 1
        with pytest.raises(lt.LazyIndexError):
            np.asarray(lt.nn.cross_entropy(logits, pending))


def test_errors_name_the_line_of_the_call() -> None:
    with pytest.raises(lt.LazyValueError, match="broadcast") as caught:
        lt.nn.layer_norm(lt.ones((2, 3)), lt.ones(4))
    assert "test_lazy_composites.py" in str(caught.value)
    assert np.asarray(lt.nn.layer_norm(lt.ones((2, 3)), lt.ones(3))).shape == (2, 3)


@composite()
def _outer(x: Any, y: Any) -> Any:
    return lt.nn.softmax(x) * lt.nn.gelu(y) + elementwise.clip(x, -0.5, 0.5)


@composite()
def _itself(x: Any) -> Any:
    return x


def test_composites_of_composites_and_of_nothing() -> None:
    rng = np.random.default_rng(0)
    a, b = (lt.asarray(rng.normal(size=(2, 3)).astype(np.float32)) for _ in range(2))
    for _ in range(2):
        near(_outer(a, b), _outer.__wrapped__(a, b))
        near(_outer(a, a), _outer.__wrapped__(a, a))
        near(_itself(a) + _itself(b), a + b)
        whole = lt.grad(lambda x: lt.sum(_outer(x, _itself(x))))(a)
        near(whole, lt.grad(lambda x: lt.sum(_outer.__wrapped__(x, x)))(a))


def test_long_loops_of_composites_are_cut() -> None:
    x = lt.asarray(np.ones(3, np.float32))
    lt.reset_metrics()
    with lt.config(trace_limit=100):
        for _ in range(3):
            for _ in range(40):
                x = lt.nn.gelu(x) + 0.5
            lt.sync()
    found = lt.metrics()
    assert found.cut_causes["trace limit"] >= 9
    assert max(cut.nodes for cut in found.cuts) <= 130
    expected = np.ones(3, np.float32)
    for _ in range(120):
        expected = np.asarray(jax.nn.gelu(expected)) + np.float32(0.5)
    np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-3)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(UNARY)), st.booleans()), min_size=1, max_size=6),
    ARRAYS,
)
@LIMITED
def test_replay_with_composites_is_recording_anew(calls: list[tuple[str, bool]], data: Any) -> None:
    def program(shift: float) -> list[Any]:
        x, found = lt.asarray(data + np.float32(shift)), []
        for name, through in calls:
            function = getattr(lt.nn, name)
            if through:
                x = x - 0.1 * lt.grad(lambda v, f=function: lt.sum(f(v) * f(v)))(x)
            else:
                found.append(function(x) * (0.5 + shift))
        return [np.asarray(y) for y in (x, *found)]

    with lt.config(tier="op-by-op"):
        with lt.config(replay=False):
            expected = [program(0.25 * k) for k in range(3)]
        for mine, others in zip([program(0.25 * k) for k in range(3)], expected, strict=True):
            for a, b in zip(mine, others, strict=True):
                np.testing.assert_array_equal(a, b)
