"""`lt.tune`: graphs that ran are tuned, each module once, and what the store says applies afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.runtime import cut

RNG = np.random.default_rng(0)


def _work(x: lt.Tensor, w: lt.Tensor) -> lt.Tensor:
    for _ in range(3):
        x = lt.nn.softmax(lt.tanh(x @ w) * 1.5 + 0.3 * x) - lt.mean(x, axis=0)
    return x


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.db"))
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()


def test_tuned_graphs_apply_what_was_found(fresh: None) -> None:
    x, w = (lt.asarray(RNG.normal(size=(48, 48)).astype(np.float32) / 4) for _ in range(2))
    before = np.asarray(_work(x, w))
    with lt.tune(budget_s=4.0, evaluations=2, seed=0) as results:
        for _ in range(3):  # the second run starts a compile in the background
            y = _work(x, w)
            lt.sync()
    assert len(results) == 1
    names = [module.name for module in results[0].modules]
    assert len(names) == len(set(names)) == 1
    del y
    with lt.step():
        after = _work(x, w)
    assert lt.metrics().cuts[-1].how == "compiled"  # it was known: it does not start cold again
    assert any(
        entry.outcome.partition(": ")[2].startswith(("tuned", "stored winner"))
        for entry in cut.cache.entries()
    ), [entry.outcome for entry in cut.cache.entries()]
    np.testing.assert_allclose(np.asarray(after), before, rtol=1e-4, atol=1e-5)


def test_a_budget_too_small_tunes_nothing(fresh: None) -> None:
    with lt.tune(budget_s=0.1) as results:
        np.asarray(_work(*(lt.ones((8, 8)) for _ in range(2))))
    assert results == []


def test_graphs_that_cannot_be_tuned_are_reported(fresh: None) -> None:
    with lt.tune(budget_s=3.0, store=Path("/proc/no/such/store.db")) as results:
        np.asarray(_work(*(lt.ones((8, 8)) for _ in range(2))))
    assert results == []
    assert any(reason.startswith("tune: ") for reason in lt.metrics().fallbacks)
