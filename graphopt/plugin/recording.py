"""Leaving compiled modules in the store's queue, to be tuned in the background: `install(record=True)`.

What is done in the user's threads: a module's bytes are kept when it is compiled, its first calls are counted
and the clock is read, and twice a sample of its inputs is looked at. All else is done by a thread of its own,
which writes soon after a compile, once a minute, and when the process ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from graphopt.errors import ConfigError, GraphOptError, message
from graphopt.hlo.module.labels import take_labels
from graphopt.outcomes import ModuleRecord
from graphopt.plugin.input_ranges import Array, Ends, ends_of, packed_values, values_of, wider
from graphopt.store import Store
from graphopt.store.queue import add_calls, put_sighting
from graphopt.store.queue_items import MAX_MODULE_BYTES, InputRange, Sighting, id_of

COUNTED: Final = 8
"""Calls of a module that are counted one by one; each takes some 0.1 ms longer for it."""

SETTLE_S: Final = 2.0
"""Between a compile and the first writing: the first calls are seen by then."""

INTERVAL_S: Final = 60.0
"""Between later writings."""

EXIT_S: Final = 3.0
"""Longest time that the end of a process waits for the last writing."""

MAX_PENDING: Final = 64
"""Compiled modules that are watched at once; of more, the first are not counted any longer."""

UNRECORDED: Final = ("too small to matter", "compiled by a policy")
"""Reasons of the report for which a module is not worth a place in the queue."""

Record = bool | Literal["inputs"]
"""Whether to record; ``"inputs"`` records values of inputs too."""

_logger = logging.getLogger("graphopt")


def record_wanted(record: Record | None) -> Record:
    """What an `install` is to record: its argument, taken away or else given by GRAPHOPT_RECORD.

    Raises:
        ConfigError: neither is a value that there is.
    """
    named = os.environ.get("GRAPHOPT_RECORD", "")
    known: dict[str, Record] = {"": False, "0": False, "1": True, "inputs": "inputs"}
    if named not in known or record not in (None, False, True, "inputs"):
        raise ConfigError(
            what=f"nothing can be recorded as {named if named not in known else record!r}",
            where="GRAPHOPT_RECORD" if named not in known else "install(record=)",
            fix="Give True, False or 'inputs'; 0, 1 or inputs in the environment.",
        )
    if record is None:
        return known[named]
    return False if named == "0" else record


@dataclass
class Watched:
    """A module that this process has compiled.

    Attributes:
        program: its name.
        data: its bytes as the hook received them; dropped when they are written.
        tuned: a winner was adopted.
        compile_s: seconds of the compile.
        id: under which it stands in the queue; empty until it is written.
        times: when it was called, while calls are counted.
        cpu_s: CPU time of the process, compiles aside, at the last counted call.
        ends: ranges of its inputs.
        values: their values, where asked for.
        inputs: their types; none where the module cannot run alone.
        written: calls that the queue knows of.
        news: something is not written yet.
    """

    program: str
    data: bytes
    tuned: bool
    compile_s: float = 0.0
    id: str = ""
    times: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    ends: list[Ends] = field(default_factory=list)
    values: list[Array] | None = None
    inputs: tuple[InputRange, ...] = ()
    written: float = 0.0
    news: bool = True

    @property
    def counting(self) -> bool:
        """Whether calls are still counted."""
        return len(self.times) < COUNTED

    def calls(self, cpu_s: float) -> float:
        """Calls so far: those that were counted, then at their pace as long as the process computes.

        Args:
            cpu_s: CPU time of the process by now, compiles aside.
        """
        if self.counting:
            return float(len(self.times))
        steps = [b - a for a, b in zip(self.times, self.times[1:], strict=False)]
        pace = max(statistics.median(steps), 1e-6)
        span = min(time.perf_counter() - self.times[-1], cpu_s - self.cpu_s)
        return COUNTED + max(0.0, span) / pace


class Recorder:
    """What an installation records. No method raises, but for the first."""

    def __init__(
        self, store: Store, values: bool = False, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Starts to record; nothing is written before the first compile.

        Args:
            store: with the queue.
            values: record values of inputs too.
            tell: told in one line what could not be recorded.
        """
        self._tell = tell
        self.store = store
        self.values = values
        self._lock = threading.Lock()
        self._noted: deque[tuple[float, str, bytes, bool]] = deque(maxlen=MAX_PENDING)
        self._watched: dict[int, tuple[Any, Watched]] = {}
        self._modules: list[Watched] = []
        self._wake = threading.Event()
        self._stop = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._compile_s = 0.0
        self._written: set[str] = set()

    def note(self, data: bytes, record: ModuleRecord) -> None:
        """In XLA's hook: a module, and what became of it."""
        if record.reason not in UNRECORDED and len(data) <= MAX_MODULE_BYTES:
            with self._lock:
                self._noted.append((time.perf_counter(), record.name, data, record.tuned))

    def compiled(self, name: str, executable: Any, seconds: float) -> None:
        """After a compile: joins the module that the hook saw with what it became."""
        self._quietly(lambda: self._compiled(name, executable, seconds))

    def _compiled(self, name: str, executable: Any, seconds: float) -> None:
        begun = time.perf_counter() - seconds
        with self._lock:
            self._compile_s += seconds
            found = [n for n in self._noted if n[1] == name and n[0] >= begun]
            if not found or self._stop or os.getpid() != self._process:
                return
            self._noted.remove(found[-1])
            _, _, data, tuned = found[-1]
            module = Watched(name, data, tuned, seconds)
            self._modules.append(module)
            self._watched[id(executable)] = (executable, module)
            while len(self._watched) > MAX_PENDING:
                del self._watched[next(iter(self._watched))]
            if self._thread is None:
                atexit.register(self.close)
                self._thread = threading.Thread(
                    target=self._write_on, name="graphopt-recorder", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def _cpu_s(self) -> float:
        return time.process_time() - self._compile_s

    def wanted(self, executable: Any) -> bool:
        """Whether calls of an executable are still counted."""
        return id(executable) in self._watched

    def called(self, executable: Any, arguments: Sequence[Any]) -> None:
        """Before a call that is counted."""
        self._quietly(lambda: self._called(executable, arguments))

    def _called(self, executable: Any, arguments: Sequence[Any]) -> None:
        with self._lock:
            found = self._watched.get(id(executable))
            if found is None:
                return
            module = found[1]
            module.times.append(time.perf_counter())
            module.news = True
            number = len(module.times)
            if not module.counting:
                module.cpu_s = self._cpu_s()
                del self._watched[id(executable)]
        if number in (1, COUNTED) or not any(module.ends):
            ends = ends_of(arguments)
            old = module.ends if len(module.ends) == len(ends) else [None] * len(ends)
            module.ends = [wider(a, b) for a, b in zip(old, ends, strict=True)]
        if self.values and module.values is None and not module.id:
            module.values = values_of(arguments)

    def _quietly(self, action: Callable[[], None]) -> None:
        """Does something whose failure is nobody's concern but the report's."""
        try:
            action()
        except GraphOptError as error:
            self._tell(f"a module is not recorded: {error}")
        except Exception as error:
            _logger.exception("recording failed")
            self._tell(f"a module is not recorded: {message(error)}"[:300])

    def _write_on(self) -> None:
        while not self._stop:
            self._wake.wait(INTERVAL_S)
            if self._wake.is_set() and not self._stop:
                self._wake.clear()
                self._pause(SETTLE_S)
            if not self._stop:
                self.write()
        self.write()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop and time.monotonic() < end:
            time.sleep(0.05)

    def write(self) -> None:
        """Brings the queue up to date, in this thread."""
        with self._lock:
            modules = list(self._modules)
        for module in modules:
            self._quietly(lambda module=module: self._write(module))  # type: ignore[misc]

    def _write(self, module: Watched) -> None:
        calls = module.calls(self._cpu_s())
        if not module.news and calls < 1.02 * module.written + 1.0:
            return
        module.news = False
        if not module.id:
            kept = self._put(module, calls)
        elif add_calls(self.store, module.id, calls - module.written, _ranges(module)):
            module.written = calls
            return
        else:
            kept = False  # it was forgotten meanwhile
        if not kept:
            with self._lock:
                self._modules.remove(module)

    def _put(self, module: Watched, calls: float) -> bool:
        """Whether a module is in the queue now; one that this process has compiled before is so already."""
        bare = take_labels(module.data)[0]
        values = None if module.values is None else packed_values(module.values)
        module.values = None
        module.inputs = _types(bare)
        module.written, module.id, module.data = calls, id_of(bare), b""
        if module.id in self._written:
            return add_calls(self.store, module.id, calls, _ranges(module), values)
        self._written.add(module.id)
        seen = Sighting(
            module.program, bare, _ranges(module), values, module.compile_s, calls, module.tuned
        )
        return put_sighting(self.store, seen)

    def close(self) -> None:
        """Writes what is not written yet, and records no more; waits at most `EXIT_S`."""
        with self._lock:
            self._stop = True
            self._watched.clear()
        self._wake.set()
        thread = self._thread
        if thread is not None and os.getpid() == self._process:
            thread.join(EXIT_S)
            atexit.unregister(self.close)


def _types(module: bytes) -> tuple[InputRange, ...]:
    """Inputs of a module, their ranges unknown; none where it cannot run alone."""
    from graphopt.measure.compiling.stub import signature

    try:
        parameters = signature(module).parameters
    except GraphOptError:
        return ()
    return tuple(InputRange(tuple(p.shape), p.dtype.name) for p in parameters)


def _ranges(module: Watched) -> tuple[InputRange, ...]:
    """Inputs of a module with the ranges that were seen."""
    if len(module.ends) != len(module.inputs):
        return module.inputs
    return tuple(
        known if end is None else replace(known, low=end[0], high=end[1])
        for known, end in zip(module.inputs, module.ends, strict=True)
    )
