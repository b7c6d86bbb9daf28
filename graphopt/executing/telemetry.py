"""Who answered what, how fast: log lines, Ray's metrics on a cluster, OpenTelemetry where it is installed."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from graphopt.executing.request import Answer, Request
from graphopt.extras import available

LOGGER: Final = logging.getLogger("graphopt.executing")

ANSWERS: Final = ("graphopt_answers", "Requests answered, by kind of work, status and machine.")
SECONDS: Final = ("graphopt_work_seconds", "Seconds of work per request.")
BOUNDARIES_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def told(request: Request, answer: Answer) -> None:
    """Says on the asking side that a request was answered: a log line, OpenTelemetry's metrics and a span."""
    LOGGER.info(
        "%s %s: %s after %.2f s and %d tries, by %s%s",
        request.label or request.work, answer.id[:8], answer.status, answer.seconds,
        answer.tries, answer.place, f": {answer.detail}" if answer.detail else "",
    )  # fmt: skip
    with _harmless():
        telemetry = _open_telemetry()
        if telemetry is not None:
            telemetry.tell(request, answer)


def counted_by_ray(request: Request, answer: Answer) -> None:
    """Says on the machine that answered: Ray exports it for Prometheus and shows it in its dashboard."""
    with _harmless():
        counter, seconds = _ray_metrics()
        counter.inc(1, {"work": request.work, "status": answer.status})
        seconds.observe(answer.seconds, {"work": request.work})


@contextlib.contextmanager
def _harmless() -> Iterator[None]:
    """An answer is worth more than what is told of it."""
    try:
        yield
    except Exception as error:  # whatever an exporter of the user raises
        LOGGER.warning("an answer is not counted: %s", error)


class _Telemetry:
    """Counter, histogram and spans. They do nothing until a user sets up OpenTelemetry's SDK."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        meter = metrics.get_meter("graphopt")
        self.answers = meter.create_counter(ANSWERS[0], description=ANSWERS[1])
        self.seconds = meter.create_histogram(SECONDS[0], unit="s", description=SECONDS[1])
        self.tracer = trace.get_tracer("graphopt")

    def tell(self, request: Request, answer: Answer) -> None:
        """Counts an answer; its span ends now and is as long as the work took."""
        from opentelemetry.trace import Status, StatusCode

        facts = {"work": request.work, "status": answer.status, "place": answer.place}
        self.answers.add(1, facts)
        self.seconds.record(answer.seconds, facts)
        end = time.time_ns()
        span = self.tracer.start_span(
            f"graphopt {request.work}",
            start_time=end - round(1e9 * answer.seconds),
            attributes={**facts, "id": answer.id, "label": request.label, "tries": answer.tries},
        )
        if not answer.ok:
            span.set_status(Status(StatusCode.ERROR, answer.detail))
        span.end(end_time=end)


@functools.lru_cache(maxsize=1)
def _open_telemetry() -> _Telemetry | None:
    """None where OpenTelemetry is not installed."""
    return _Telemetry() if available("opentelemetry") else None


@functools.lru_cache(maxsize=1)
def _ray_metrics() -> tuple[Any, Any]:
    from ray.util import metrics

    return (
        metrics.Counter(*ANSWERS, tag_keys=("work", "status")),
        metrics.Histogram(*SECONDS, boundaries=list(BOUNDARIES_S), tag_keys=("work",)),
    )
