"""Backward passes that are recorded as one node: same values, same programs, same limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.transforms import grad

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
W = RNG.normal(size=(4, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    yield
    lt.sync()


def _loss(w: lt.Tensor, x: lt.Tensor, scale: float = 0.7) -> lt.Tensor:
    h = lt.tanh(x @ w) * scale
    return lt.sum(lt.take(h, lt.asarray([0, 2]), axis=1) ** 2) / (1.5 + lt.sum(lt.abs(h)))


def _reference(w: np.ndarray, scale: float) -> np.ndarray:
    found = np.zeros_like(w, dtype=np.float64)
    for index in np.ndindex(*w.shape):
        for sign in (1, -1):
            moved = w.astype(np.float64)
            moved[index] += sign * 1e-6
            h = np.tanh(X.astype(np.float64) @ moved) * scale
            found[index] += sign * np.sum(h[:, [0, 2]] ** 2) / (1.5 + np.sum(np.abs(h)))
    return found / 2e-6


@pytest.mark.parametrize("tier", ["op-by-op", "compiled"])
def test_later_backward_passes_use_their_own_values(tier: str) -> None:
    gradient = lt.grad(_loss)
    with lt.config(tier=tier):
        for scale in (0.7, 0.3, 2.5):
            w = lt.asarray(W * scale)
            found = np.asarray(gradient(w, lt.asarray(X), scale))
            np.testing.assert_allclose(found, _reference(W * scale, scale), rtol=2e-4, atol=1e-6)


def test_equal_steps_are_one_graph() -> None:
    gradient = lt.grad(_loss)
    lt.reset_metrics()
    w, x = lt.asarray(W), lt.asarray(X)
    for _ in range(4):
        with lt.step():
            w = w - 0.1 * gradient(w, x)
    assert lt.metrics().distinct_graphs == 1


def test_structures_with_other_branches_are_kept_apart() -> None:
    def loss(x: lt.Tensor) -> lt.Tensor:
        y = x * x * x + x
        return lt.sum(y * 2.0) if lt.sum(x) > 0 else lt.sum(y * y * 3.0)

    for sign in (1, -1, 1, -1):
        data = np.full(3, sign, np.float32)
        expected = 8.0 if sign > 0 else 3.0 * 2 * -2 * 4
        np.testing.assert_allclose(np.asarray(lt.grad(loss)(lt.asarray(data))), expected)


def test_operands_that_are_the_same_tensor_are_another_structure() -> None:
    def loss(a: lt.Tensor, b: lt.Tensor) -> lt.Tensor:
        return lt.sum(lt.tanh(a) * lt.sin(b) * b + a)

    one, two = lt.asarray(X), lt.asarray(X + 1)
    for a, b in ((one, two), (one, one), (two, one), (two, two)):
        with lt.config(tier="op-by-op"):
            found = np.asarray(lt.grad(loss)(a, b))
        x, y = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(found, np.sin(y) * y / np.cosh(x) ** 2 + 1, rtol=1e-5)


def test_gradient_that_nobody_keeps_is_not_computed() -> None:
    def loss(a: lt.Tensor, b: lt.Tensor) -> lt.Tensor:
        return lt.sum(lt.tanh(a) * lt.exp(lt.sin(b)))

    def operations(keep: int) -> int:
        with lt.step():
            grads = lt.grad(loss, argnums=(0, 1))(lt.asarray(X), lt.asarray(X))
            kept = grads[keep]
            del grads
        np.asarray(kept)
        return lt.metrics().cuts[-1].nodes

    both = lt.grad(loss, argnums=(0, 1))
    with lt.step():
        grads = both(lt.asarray(X), lt.asarray(X))
    del grads
    all_of_them = lt.metrics().cuts[-1].nodes
    assert max(operations(0), operations(1)) < all_of_them


def test_second_derivatives_after_first_ones() -> None:
    def cube(x: lt.Tensor) -> lt.Tensor:
        return lt.sum(lt.sin(x) * x * x + x)

    x = lt.asarray(X)
    for _ in range(2):
        lt.grad(cube)(x)
        second = lt.grad(lambda y: lt.sum(lt.grad(cube)(y)))(x)
        expected = 2 * np.sin(X) + 4 * X * np.cos(X) - X * X * np.sin(X)
        np.testing.assert_allclose(np.asarray(second), expected, rtol=1e-4, atol=1e-5)


def test_results_that_are_arguments_cotangents_or_constants() -> None:
    for _ in range(2):
        value, pull = lt.vjp(lambda a, b: (a + b) * 1 + 0 * a + 0, lt.asarray(X), lt.asarray(X))
        first, second = pull(lt.ones((3, 4)) * 2.5)
        np.testing.assert_allclose(np.asarray(first), 2.5)
        np.testing.assert_allclose(np.asarray(second), 2.5)
        np.testing.assert_allclose(np.asarray(value), 2 * X, rtol=1e-6)
        unused = lt.grad(lambda a: lt.sum(lt.tanh(lt.sin(lt.asarray(X)) * 2.0)))(lt.asarray(X))
        np.testing.assert_array_equal(np.asarray(unused), 0)


def test_long_loops_of_gradients_are_cut() -> None:
    x = lt.asarray(X)
    lt.reset_metrics()
    with lt.config(trace_limit=200):
        for _ in range(60):
            x = x - 0.01 * lt.grad(lambda y: lt.sum(lt.tanh(lt.sin(y) * 0.5) * y))(x)
    causes = lt.metrics().cut_causes
    assert causes.get("trace limit", 0) >= 2
    assert max(cut.nodes for cut in lt.metrics().cuts) <= 300
    assert np.isfinite(np.asarray(x)).all()


def test_shown_graphs_name_the_operations_of_a_backward_pass() -> None:
    for _ in range(2):
        gradient = lt.grad(lambda y: lt.sum(lt.tanh(lt.sin(y)) * y))(lt.asarray(X))
        text = _shown(gradient)
        assert "cos" in text
        assert "= block(" not in text


def _shown(x: lt.Tensor) -> str:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = lt.show(x)
    return out.getvalue() + (result or "")


def test_kept_passes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad, "MAX_BLOCKS", 3)
    grad._blocks.clear()
    for n in range(1, 8):
        x = lt.ones((n,))
        np.testing.assert_allclose(
            np.asarray(lt.grad(lambda y: lt.sum(lt.sin(y) * y * 2.0))(x)),
            2 * (np.cos(1) + np.sin(1)),
            rtol=1e-5,
        )
    assert len(grad._blocks) == 3
