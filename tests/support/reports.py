"""What tests of the installed plugin share."""

from __future__ import annotations

import functools

import graphopt
from graphopt.measure import compare_outputs, compile_with
from graphopt.outcomes import ModuleRecord, Outcome
from support.small_programs import STATE, rollout

REWRITTEN, KEPT, FELL_BACK = Outcome.REWRITTEN, Outcome.KEPT, Outcome.FELL_BACK


@functools.cache
def reference():
    """What XLA's default computes."""
    return compile_with(rollout, (STATE,))()


def agrees(result) -> bool:
    return compare_outputs(reference(), result).equal


def only_record() -> ModuleRecord:
    (record,) = graphopt.report().records
    return record


def as_it_is(graph):
    """A policy that XLA's own decisions satisfy."""
    return graph.default
