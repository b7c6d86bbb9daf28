"""Times of native regions that were never measured, from the features of what they contain.

A region is one function: what its items cost together is not the sum of what each would cost alone. So the
model of whole kernels is asked about the region, whose features are sums over its items, each as often as it
runs per execution of the region.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.measure.bank.kernels import COUNT, FEATURES, combine_counts
from graphopt.measure.bank.known_times import KnownTimes
from graphopt.measure.bank.predictor import KernelModel
from graphopt.measure.bank.signatures import Signatures

Floats = NDArray[np.float64]


class RegionPricer:
    """Predicts whole regions; each once per name."""

    def __init__(self, model: KernelModel, pessimism: float) -> None:
        """Knows no item yet.

        Args:
            model: of whole kernels; untrained, it says nothing, and regions stay the sum of their items.
            pessimism: standard deviations (of the logarithm) added to predictions.
        """
        self.model = model
        self.pessimism = pessimism
        self._rows = KnownTimes()
        self._features = np.zeros((64, COUNT))
        self._learned = 0
        self._known = KnownTimes()

    def learn(self, keys: NDArray[np.uint64], features: Floats) -> None:
        """Takes the features of items of native code.

        Args:
            keys: uint64 [K]; their names.
            features: float64 [K, F].
        """
        begin = self._learned
        self._learned += len(keys)
        while begin + len(keys) > len(self._features):
            self._features = np.concatenate([self._features, np.zeros_like(self._features)])
        rows = np.arange(begin, begin + len(keys))
        self._features[rows] = features
        self._rows.put(keys, rows.astype(np.float64))

    def forget(self) -> None:
        """Drops predictions: how often items run has changed."""
        self._known = KnownTimes()

    def price(
        self, signatures: Signatures, wanted: NDArray[np.bool_], executions: Floats
    ) -> Floats:
        """Nanoseconds per execution of regions.

        Args:
            signatures: of B vectors.
            wanted: bool [B, G]; regions to price.
            executions: float64 [N]; executions of each node per run.

        Returns:
            float64 [B, G]; NaN where not wanted, or nothing is known.
        """
        if not self.model.knows_regions or not wanted.any():
            return np.full(wanted.shape, np.nan)
        keys = np.where(wanted, signatures.region_key, np.uint64(0))
        missing = wanted & np.isnan(self._known.get(keys))
        if missing.any():
            self._predict(signatures, missing, executions)
        return np.where(wanted, self._known.get(keys), np.nan)

    def _predict(
        self, signatures: Signatures, missing: NDArray[np.bool_], executions: Floats
    ) -> None:
        rows, numbers = np.nonzero(missing)
        names, first = np.unique(signatures.region_key[rows, numbers], return_index=True)
        features = np.stack(
            [
                self._combined(signatures, int(rows[i]), int(numbers[i]), executions)
                for i in first.tolist()
            ]
        )
        ns, deviation = self.model.predict(features)
        self._known.put(names, ns * np.exp(self.pessimism * deviation))

    def _combined(
        self, signatures: Signatures, row: int, number: int, executions: Floats
    ) -> Floats:
        items = np.flatnonzero((signatures.region[row] == number) & (signatures.key[row] != 0))
        places = self._rows.get(signatures.key[row, items])
        items, places = items[~np.isnan(places)], places[~np.isnan(places)]
        base = max(float(executions[signatures.region_node[number]]), 1e-9)
        if not len(items):
            return combine_counts(np.zeros((1, len(FEATURES))), np.ones(1))
        return combine_counts(self._features[places.astype(np.intp)], executions[items] / base)
