"""The child process of the module that a request was about last: its default need not be compiled again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.measure.inputs import load_inputs, save_inputs
from graphopt.tasks.duel import Duels

Inputs = Sequence[np.ndarray[Any, Any]]


def packed_inputs(inputs: Inputs | None) -> tuple[bytes, ...]:
    """Inputs of a module as blobs; none for made-up ones."""
    if inputs is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="graphopt-inputs-") as folder:
        path = Path(folder, "inputs.npz")
        save_inputs(path, inputs)
        return (path.read_bytes(),)


def _unpacked(data: bytes) -> Inputs:
    with tempfile.TemporaryDirectory(prefix="graphopt-inputs-") as folder:
        path = Path(folder, "inputs.npz")
        path.write_bytes(data)
        return load_inputs(path)


class Warm:
    """The duels of one module at a time."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self.key: tuple[str | None, tuple[bytes, ...]] = (None, ())
        self.duels: Duels | None = None

    def of(self, blobs: tuple[bytes, ...]) -> Duels:
        """Duels of a module, under the flags of this process.

        Args:
            blobs: the serialised module, and its inputs as `packed_inputs` makes them.
        """
        key = os.environ.get("XLA_FLAGS"), blobs
        if self.duels is None or key != self.key:
            self.close()
            data, *packed = blobs
            self.duels = Duels(data, _unpacked(packed[0]) if packed else None)
            self.key = key
        return self.duels

    def close(self) -> None:
        """Ends the child process, if there is one."""
        duels, self.duels = self.duels, None
        if duels is not None:
            duels.close()


WARM: Final = Warm()
"""Of this process."""
