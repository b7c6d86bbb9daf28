"""Predicts the time of kernels that were never measured, from their features.

Two models, both trained from the bank:

* an ensemble of gradient-boosted trees for kernels as a whole (clusters, instructions, regions), giving a
  mean and, by the spread of its members, an uncertainty;
* a linear model with positive weights for single items inside native regions, whose times must add up,
  because only whole regions can be measured.

Until there is enough in the bank, fixed coefficients of the linear form stand in for both. Without
scikit-learn there are no trees: the linear model predicts whole kernels too, with a wide uncertainty, so
that a search measures more and trusts predictions less.
"""

from __future__ import annotations

import functools
import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.extras import available, fix
from graphopt.measure.bank.kernels import COUNT, FEATURES
from graphopt.store import Store
from graphopt.store.kernels import Kernel, all_kernels, state_of_kernels

Floats = NDArray[np.float64]

_logger = logging.getLogger("graphopt")

MIN_KERNELS: Final = 60
"""Kernels from which training is worth it."""

MIN_REGIONS: Final = 200
"""Regions from which they are predicted whole; before, they are the sum of their items."""

MEMBERS: Final = 4
_INDEX: Final = {name: i for i, (name, _) in enumerate(FEATURES)}

ADDITIVE: Final = (
    "items", "nodes", "work", "transcendental", "indexed", "reduced", "dot", "sorted", "moves",
    "bytes_in", "bytes_out", "operands",
)  # fmt: skip
"""Features (as counts) that the linear model weighs."""

PRIOR_NS: Final = (10.0, 0.3, 0.15, 0.1, 0.6, 0.15, 0.08, 8.0, 0.1, 0.01, 0.02, 2.0)
"""Nanoseconds per count, in the order of `ADDITIVE`: orders of magnitude on AVX2 machines."""


PULL: Final = 0.3
"""Weight of the prior, in kernels, on the logarithm of each coefficient."""

RANGE: Final = 7.0
"""Farthest that a coefficient's logarithm may lie from the prior's."""


def counts(features: Floats) -> Floats:
    """float64 [K, A]; additive features as plain counts."""
    columns = features[:, [_INDEX[name] for name in ADDITIVE]]
    return np.asarray(np.expm1(np.minimum(columns, 60.0)))


@dataclass(frozen=True)
class LinearModel:
    """Nanoseconds as a positive combination of counts.

    Attributes:
        weights: float64 [A]; nanoseconds per count, in the order of `ADDITIVE`.
        trained: from measurements, not the prior.
    """

    weights: Floats
    trained: bool

    def predict(self, features: Floats) -> Floats:
        """float64 [K]; nanoseconds, at least 1."""
        return np.maximum(counts(features) @ self.weights, 1.0)

    @classmethod
    def prior(cls) -> LinearModel:
        """Fixed coefficients."""
        return cls(np.asarray(PRIOR_NS), False)

    @classmethod
    def fit(cls, features: Floats, ns: Floats) -> LinearModel:
        """Robust least squares of the logarithms, pulled weakly towards the prior.

        Fitting relative errors instead would predict too little: a time predicted as zero is wrong by 100 %
        only, one predicted three times too long by 200 %.

        Args:
            features: float64 [K, F].
            ns: float64 [K]; measured nanoseconds.
        """
        from scipy.optimize import least_squares

        added, measured = counts(features), np.log(ns)
        prior = np.log(np.asarray(PRIOR_NS))

        def residuals(logs: Floats) -> Floats:
            predicted = np.log(added @ np.exp(logs) + 1.0)
            return np.concatenate([predicted - measured, PULL * (logs - prior)])

        def jacobian(logs: Floats) -> Floats:
            weights = np.exp(logs)
            slopes = added * weights / (added @ weights + 1.0)[:, None]
            return np.concatenate([slopes, PULL * np.eye(len(logs))])

        low, high = prior - RANGE, prior + RANGE
        found = least_squares(residuals, prior, jacobian, bounds=(low, high), loss="soft_l1")
        return cls(np.exp(found.x), True)


class KernelModel:
    """Mean and uncertainty of kernel times; deterministic for one content of the bank."""

    def __init__(self, kernels: list[Kernel], seed: int = 0) -> None:
        """Trains on measured kernels.

        Args:
            kernels: from the bank; those with another number of features are ignored.
            seed: of the ensemble.
        """
        usable = [k for k in kernels if len(k.features) == COUNT and k.ns > 0]
        self.trained_on = len(usable)
        features = np.array([k.features for k in usable]).reshape(len(usable), COUNT)
        ns = np.array([k.ns for k in usable])
        native = features[:, _INDEX["native"]] > 0
        self._regions = int(native.sum())
        self.item = LinearModel.prior()
        if native.any():
            self.item = LinearModel.fit(features[native], ns[native])
        self._fallback = LinearModel.prior()
        if not native.all():
            self._fallback = LinearModel.fit(features[~native], ns[~native])
        self._members: list[Any] = []
        if len(usable) >= MIN_KERNELS and not available("sklearn"):
            _logger.warning(
                "without scikit-learn, kernel times are predicted less well. %s", fix("tune")
            )
        elif len(usable) >= MIN_KERNELS:
            rng = np.random.default_rng(seed)
            inputs = self._inputs(features)
            with _one_thread():
                for _ in range(MEMBERS):
                    drawn = rng.integers(len(usable), size=len(usable))
                    self._members.append(_tree(inputs[drawn], np.log(ns[drawn])))

    @property
    def knows_regions(self) -> bool:
        """True once the trees have seen enough native regions to predict others whole."""
        return bool(self._members) and self._regions >= MIN_REGIONS

    def _linear(self, features: Floats) -> Floats:
        native = features[:, _INDEX["native"]] > 0
        return np.where(native, self.item.predict(features), self._fallback.predict(features))

    def _inputs(self, features: Floats) -> Floats:
        """Features and the linear model's answer, which trees cannot extrapolate without."""
        return np.concatenate([features, np.log(self._linear(features))[:, None]], axis=1)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Predicted times.

        Args:
            features: float64 [K, F].

        Returns:
            float64 [K], nanoseconds; float64 [K], one standard deviation of their logarithm (0.7, a
            factor of two, where nothing has been learned yet).
        """
        if not len(features):
            return np.zeros(0), np.zeros(0)
        if not self._members:
            return self._linear(features), np.full(len(features), 0.7)
        inputs = self._inputs(features)
        with _one_thread():
            logs = np.stack([m.predict(inputs) for m in self._members])
        return np.exp(logs.mean(axis=0)), logs.std(axis=0) + 0.05


def _one_thread() -> AbstractContextManager[Any]:
    """scikit-learn with one thread: more gain nothing on so few rows, and wait for busy cores."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="openmp")
    return limited


@functools.cache
def _controller() -> Any:
    import sklearn.ensemble  # noqa: F401 - its libraries are those that are limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _tree(inputs: Floats, targets: Floats) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=120, learning_rate=0.12, max_leaf_nodes=24, min_samples_leaf=4,
        l2_regularization=1.0, loss="absolute_error", random_state=0, early_stopping=False,
    )  # fmt: skip
    return model.fit(inputs, targets)


def model_of(store: Store | None) -> KernelModel:
    """The model of a store's kernels, trained once for as long as they do not change.

    Args:
        store: the bank; None, or one that does not exist, gives the fixed coefficients.
    """
    if store is None or not store.exists():
        return KernelModel([])
    path, content = str(store.path), state_of_kernels(store)
    known = _TRAINED.get(path)
    if known is None or known[0] != content:
        known = _TRAINED[path] = (content, KernelModel(all_kernels(store)))
    return known[1]


_TRAINED: Final[dict[str, tuple[tuple[Any, ...], KernelModel]]] = {}
"""Path of a store -> state of its kernels, and the model trained from them."""
