"""Who answered what, how fast: log lines, Ray's metrics on a cluster, OpenTelemetry where it is installed."""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from graphopt.executing.request import Answer, Request
from graphopt.extras import available

LOGGER: Final = logging.getLogger("graphopt.executing")

ANSWERS: Final = ("graphopt_answers", "Requests answered, by kind of work, status and machine.")
SECONDS: Final = ("graphopt_work_seconds", "Seconds of work per request.")
BOUNDARIES_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def told(request: Request, answer: Answer) -> None:
    """Says on the asking side that a request was answered: a log line, and OpenTelemetry's metrics."""
    LOGGER.info(
        "%s %s: %s after %.2f s and %d tries, by %s%s",
        request.label or request.work, answer.id[:8], answer.status, answer.seconds,
        answer.tries, answer.place, f": {answer.detail}" if answer.detail else "",
    )  # fmt: skip
    meters = _open_telemetry()
    if meters is not None:
        facts = {"work": request.work, "status": answer.status, "place": answer.place}
        meters[0].add(1, facts)
        meters[1].record(answer.seconds, facts)


def counted_by_ray(request: Request, answer: Answer) -> None:
    """Says on the machine that answered: Ray exports it for Prometheus and shows it in its dashboard."""
    counter, seconds = _ray_metrics()
    counter.inc(1, {"work": request.work, "status": answer.status})
    seconds.observe(answer.seconds, {"work": request.work})


@functools.lru_cache(maxsize=1)
def _open_telemetry() -> tuple[Any, Any] | None:
    """Counter and histogram; None without OpenTelemetry. They do nothing until a user sets up its SDK."""
    if not available("opentelemetry"):
        return None
    from opentelemetry import metrics

    meter = metrics.get_meter("graphopt")
    return (
        meter.create_counter(ANSWERS[0], description=ANSWERS[1]),
        meter.create_histogram(SECONDS[0], unit="s", description=SECONDS[1]),
    )


@functools.lru_cache(maxsize=1)
def _ray_metrics() -> tuple[Any, Any]:
    from ray.util import metrics

    return (
        metrics.Counter(*ANSWERS, tag_keys=("work", "status")),
        metrics.Histogram(*SECONDS, boundaries=list(BOUNDARIES_S), tag_keys=("work",)),
    )
