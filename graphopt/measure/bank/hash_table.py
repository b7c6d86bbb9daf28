"""A vectorised hash table from 64-bit keys to floats: looks up a hundred thousand keys in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]


class HashTable:
    """Open addressing with linear probing; keys are assumed to be well mixed and never 0."""

    def __init__(self, capacity: int = 1024) -> None:
        """Makes an empty table."""
        self.count = 0
        self._longest = 1
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        self._mask = np.uint64(capacity - 1)
        self._keys: Keys = np.zeros(capacity, np.uint64)
        self._values: Floats = np.zeros(capacity)

    def __len__(self) -> int:
        """Number of keys."""
        return self.count

    def get(self, keys: Keys) -> Floats:
        """float64, shaped like `keys`; NaN where a key is not there."""
        flat = keys.ravel()
        out = np.full(flat.shape, np.nan)
        slot = (flat & self._mask).astype(np.intp)
        found = self._keys[slot]
        hit = found == flat
        out[hit] = self._values[slot[hit]]
        # Most keys sit where they belong; the rest walk on together.
        left = np.flatnonzero(~hit & (found != 0))
        for _ in range(self._longest):
            if not len(left):
                break
            slot[left] = (slot[left] + 1) & int(self._mask)
            found = self._keys[slot[left]]
            hit = found == flat[left]
            out[left[hit]] = self._values[slot[left[hit]]]
            left = left[~hit & (found != 0)]
        return out.reshape(keys.shape)

    def put(self, keys: Keys, values: Floats) -> None:
        """Adds keys, or replaces their values."""
        while 4 * (self.count + len(keys)) > len(self._keys):
            self._grow()
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            self._insert(key, value)

    def _insert(self, key: int, value: float) -> None:
        mask = int(self._mask)
        slot = key & mask
        steps = 0
        wanted: Any = np.uint64(key)
        while self._keys[slot] != 0 and self._keys[slot] != wanted:
            slot = (slot + 1) & mask
            steps += 1
        self.count += int(self._keys[slot] == 0)
        self._keys[slot], self._values[slot] = wanted, value
        self._longest = max(self._longest, steps + 1)

    def _grow(self) -> None:
        keys, values = self._keys[self._keys != 0], self._values[self._keys != 0]
        self._allocate(4 * len(self._keys))
        self.count, self._longest = 0, 1
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            self._insert(key, value)
