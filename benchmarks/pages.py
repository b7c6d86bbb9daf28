"""How fast a core writes to memory that the process has not touched yet, and to memory that it has.

    python -m benchmarks.pages

Results of programs that lose their donated buffers lie in fresh memory (`CpuCosts.fresh_bytes_per_ns`).
"""

from __future__ import annotations

import mmap
import time

import numpy as np

SIZES = (1 << 20, 1 << 24, 1 << 28)
"""Bytes of one array."""

ROUNDS = 9


def rates(size: int) -> tuple[float, float]:
    """Bytes per ns of the first and of the second write to an array of `size` bytes; best of `ROUNDS`."""
    first = second = float("inf")
    for _ in range(ROUNDS):
        with mmap.mmap(-1, size) as pages:
            array = np.frombuffer(pages, np.uint8)
            start = time.perf_counter_ns()
            array[:] = 1
            middle = time.perf_counter_ns()
            array[:] = 2
            end = time.perf_counter_ns()
            del array
        first, second = min(first, middle - start), min(second, end - middle)
    return size / first, size / second


def main() -> None:
    """Prints one line per size."""
    print("bytes        fresh, bytes per ns   touched")
    for size in SIZES:
        fresh, touched = rates(size)
        print(f"{size:11,d}  {fresh:19.2f}   {touched:7.2f}")


if __name__ == "__main__":
    main()
