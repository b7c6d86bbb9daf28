"""Times by 64-bit keys, in sorted arrays: a hundred thousand keys are looked up in milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]


class KnownTimes:
    """Keys with a float each."""

    def __init__(self) -> None:
        """Knows nothing."""
        self._keys: Keys = np.zeros(0, np.uint64)
        self._values: Floats = np.zeros(0)

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._keys)

    def get(self, keys: Keys) -> Floats:
        """float64, shaped like `keys`; NaN where a key is not there."""
        if not len(self):
            return np.full(keys.shape, np.nan)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(self._keys[place] == keys, self._values[place], np.nan)

    def put(self, keys: Keys, values: Floats) -> None:
        """Adds keys, or replaces their values; of a key that is given twice the last value counts."""
        # The newest come first, and of equal keys the first is kept.
        together = np.concatenate([keys[::-1], self._keys])
        self._keys, first = np.unique(together, return_index=True)
        self._values = np.concatenate([values[::-1], self._values])[first]
