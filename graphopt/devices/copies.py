"""Copies of arrays on other devices, found again by identity: weights are placed once and kept."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from graphopt import jax_private


class PlacedCopies:
    """Remembers, per living jax array, its copies on other devices.

    Arrays do not change, so that a copy is good as long as the array lives; it is forgotten with it.
    """

    def __init__(self) -> None:
        self._copies: dict[int, dict[Any, Any]] = {}
        self._watch: dict[int, weakref.ref[Any]] = {}
        self._lock = threading.Lock()
        self.made = 0
        """Arrays copied so far, for reports."""

    def on(self, sharding: Any, arrays: Sequence[Any]) -> list[Any]:
        """The arrays on the one device of `sharding`; missing copies are made together."""
        found: list[Any] = [None] * len(arrays)
        missing = []
        for position, array in enumerate(arrays):
            known = self._copies.get(id(array))
            copy = None if known is None else known.get(sharding)
            if copy is None:
                missing.append(position)
            else:
                found[position] = copy
        if missing:
            made = self._make(sharding, [arrays[p] for p in missing])
            for position, copy in zip(missing, made, strict=True):
                found[position] = copy
        return found

    def remember(self, array: Any, sharding: Any, copy: Any) -> None:
        """Notes that `copy` on `sharding` holds the same values as `array`."""
        key = id(array)
        with self._lock:
            if key not in self._watch:
                self._watch[key] = weakref.ref(array, lambda _: self._forget(key))
                self._copies[key] = {}
            self._copies[key][sharding] = copy

    def _make(self, sharding: Any, arrays: list[Any]) -> list[Any]:
        made: list[Any] = [None] * len(arrays)
        foreign = []
        for position, array in enumerate(arrays):
            if isinstance(array, np.ndarray):  # may change as soon as the call returns
                made[position] = jax.device_put(array.copy(), sharding)
            elif not isinstance(array, jax.Array):
                made[position] = jax.device_put(array, sharding)
            elif array.sharding == sharding:
                made[position] = array
            else:
                foreign.append(position)
        self.made += len(foreign)
        copies = jax_private.copy_arrays([arrays[p] for p in foreign], sharding) if foreign else []
        for position, copy in zip(foreign, copies, strict=True):
            made[position] = copy
            if copy is not arrays[position]:  # else it would keep itself alive
                self.remember(arrays[position], sharding, copy)
        return made

    def _forget(self, key: int) -> None:
        self._copies.pop(key, None)
        self._watch.pop(key, None)
