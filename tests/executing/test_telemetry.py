"""Metrics and spans of requests, through OpenTelemetry's own SDK; without it nothing is missing."""

from __future__ import annotations

import logging

import pytest
from support.fleet import numbered
from support.processes import run_python

from graphopt.executing import telemetry
from graphopt.executing.executor import LocalExecutor
from graphopt.executing.request import LOST, Answer

pytest.importorskip("opentelemetry.sdk", reason="the extra telemetry is not installed")


@pytest.fixture
def sdk(monkeypatch):
    """A reader of metrics and an exporter of spans, in memory."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider(metric_readers=[reader]), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    telemetry._open_telemetry.cache_clear()
    yield reader, exporter
    telemetry._open_telemetry.cache_clear()
    meters.shutdown()
    tracers.shutdown()


def points(reader):
    data = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
    assert data.scope.name == "graphopt"
    return {metric.name: list(metric.data.data_points) for metric in data.metrics}


def test_answers_are_counted_and_each_is_a_span(sdk):
    reader, exporter = sdk
    executor = LocalExecutor()
    for number in range(3):
        executor.submit(numbered(number, seconds=0.01, fails=number == 2))
    answers = list(executor.results())
    found = points(reader)
    counted = {p.attributes["status"]: p.value for p in found["graphopt_answers"]}
    assert counted == {"ok": 2, "failed": 1}
    assert {p.attributes["place"] for p in found["graphopt_answers"]} == {executor.place}
    seconds = sum(p.sum for p in found["graphopt_work_seconds"])
    assert seconds == pytest.approx(sum(answer.seconds for answer in answers))
    spans = exporter.get_finished_spans()
    assert [span.attributes["id"] for span in spans] == [answer.id for answer in answers]
    assert [span.status.is_ok for span in spans] == [True, True, False]
    assert "it cannot be measured" in spans[2].status.description
    for span, answer in zip(spans, answers, strict=True):
        assert span.end_time - span.start_time == pytest.approx(1e9 * answer.seconds, abs=1.0)


def test_an_answer_that_never_came_has_a_span_too(sdk):
    _, exporter = sdk
    request = numbered(1)
    telemetry.told(request, Answer(request.id, LOST, tries=5, detail="its process died"))
    (span,) = exporter.get_finished_spans()
    assert span.attributes["tries"] == 5 and span.status.description == "its process died"


def test_what_an_exporter_raises_harms_nothing(sdk, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "graphopt.executing")
    telemetry._open_telemetry()

    def full(number, facts):
        raise OSError("the disk is full")

    monkeypatch.setattr(telemetry._open_telemetry().answers, "add", full)
    executor = LocalExecutor()
    executor.submit(numbered(1))
    (answer,) = executor.results()
    assert answer.ok and "the disk is full" in caplog.text


def test_without_the_extra_requests_are_answered_all_the_same():
    script = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from graphopt.executing.executor import LocalExecutor
from graphopt.executing.request import Request
executor = LocalExecutor()
executor.submit(Request("nowhere:nothing", {}))
print([answer.status for answer in executor.results()], "opentelemetry" in sys.modules)
"""
    done = run_python("-c", script)
    assert done.stdout.strip() == "['failed'] False", done.stderr
