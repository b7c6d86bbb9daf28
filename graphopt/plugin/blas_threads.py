"""Threads of the BLAS behind XLA's factorizations, where they keep each other waiting.

XLA:CPU hands factorizations, triangular solves and eigenvalues to SciPy's LAPACK. OpenBLAS shares even
those of small matrices among threads that spin until the others are done. Where two of them have one core, as
in workers that were pinned after they had started, every call takes a time slice of the scheduler:
milliseconds for what one thread does in microseconds. Whether that is so is tried when a module calls LAPACK;
if it is, SciPy's OpenBLAS goes on with one thread.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

_logger = logging.getLogger("graphopt")

ORDER: Final = 128
"""Order of the matrices of the trial: OpenBLAS shares them, and one thread takes 0.1 ms."""

SETTLING: Final = 6
"""So many solves may wait: threads that were asleep on one core are moved to others meanwhile."""

CALLS: Final = 8
"""So many more must wait, every one of them."""

STALL_S: Final = 5e-4
"""A longer solve of the trial has waited for a time slice; threads that have cores wake in 0.1 ms."""

LOOKS: Final = 4
"""So many modules are an occasion to try: threads that have stood well may stand badly later."""

_CALLED: Final = b"lapack_"
VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""With them users say themselves how many threads they want."""


class BlasThreads:
    """The threads of SciPy's OpenBLAS in this process, from `install` to `uninstall`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._looks = 0 if any(os.environ.get(name) for name in VARIABLES) else LOOKS
        self._libraries: list[Any] | None = None
        self._limited: list[tuple[Any, int]] = []

    def look(self, data: bytes) -> None:
        """Tries the threads if a module calls LAPACK; takes them away if they stall."""
        if not self._looks or _CALLED not in data:
            return
        with self._lock:
            try:
                if self._looks:
                    self._try()
            except Exception:
                self._looks = 0
                _logger.exception("the threads of OpenBLAS were not tried")

    def _try(self) -> None:
        self._looks -= 1
        if self._libraries is None:
            self._libraries = openblas_of_scipy()
        shared = [library for library in self._libraries if library.num_threads > 1]
        if not shared:
            self._looks = 0
        elif are_stalled(timed_solves()):
            self._looks = 0
            self._limit(shared)

    def _limit(self, shared: Sequence[Any]) -> None:
        for library in shared:
            before = library.num_threads
            if set_threads(library, 1):
                self._limited.append((library, before))
        if self._limited:
            self._note(
                "factorizations run on one thread: those of SciPy's OpenBLAS keep each other waiting on "
                "this machine; install(keep_blas_threads=True) leaves them alone"
            )

    def restore(self) -> None:
        """Gives the threads back that were taken away."""
        with self._lock:
            self._looks = 0
            for library, threads in self._limited:
                set_threads(library, threads)
            self._limited.clear()


def openblas_of_scipy() -> list[Any]:
    """The OpenBLAS that SciPy has brought along, or else any that is loaded; controllers of threadpoolctl."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(internal_api="openblas").lib_controllers
    own = [library for library in found if f"{os.sep}scipy" in library.filepath]
    return own or list(found)


def set_threads(library: Any, threads: int) -> bool:
    """Sets how many threads a library uses in the whole process; False where another thread has its word.

    Newer versions of threadpoolctl listen to one thread, the first that has asked, until it hands that back.
    XLA calls the hook on a thread of its own; `uninstall` comes from another.
    """
    library.set_num_threads(threads)
    hand_back = getattr(library, "clear_controlling_thread", None)
    if hand_back is not None:
        hand_back()
    return bool(library.num_threads == threads)


def timed_solves() -> Iterator[float]:
    """Seconds of triangular solves, one after the other, by the number of threads that is set."""
    import numpy as np
    from scipy.linalg import blas

    matrix = np.asfortranarray(np.tril(np.ones((ORDER, ORDER), np.float32)))
    right = np.ones((ORDER, ORDER), np.float32, order="F")
    while True:
        start = time.perf_counter()
        blas.strsm(1.0, matrix, right, lower=1)
        yield time.perf_counter() - start


def are_stalled(seconds: Iterable[float]) -> bool:
    """Whether solves keep waiting for time slices; looks at no more of them than it takes to know."""
    waited = (s > STALL_S for s in islice(seconds, SETTLING + CALLS))
    return all(late or number < SETTLING for number, late in enumerate(waited))
