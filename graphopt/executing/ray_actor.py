"""The measuring actor: the one process of a cluster that measures on its machine."""

from __future__ import annotations

import os

from graphopt.executing.places import Facts, facts_here
from graphopt.executing.request import FAILED, Answer, Request
from graphopt.executing.telemetry import counted_by_ray
from graphopt.executing.work import perform


class MeasuringActor:
    """Answers one request after the other; holds all cores of its node, so that nothing runs beside it."""

    def __init__(self) -> None:
        """Looks at the machine."""
        # Ray sets it to the cores that it counts; what is measured must not depend on Ray.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._facts = facts_here()

    def facts(self) -> Facts:
        """What this machine is."""
        return self._facts

    def answer(self, request: Request) -> Answer:
        """Does the work; refuses what asks for another machine, whatever the labels of the node say."""
        facts = self._facts
        if request.needs.met_by(facts.machine, facts.jaxlib):
            answer = perform(request, facts.place)
        else:
            detail = f"this machine is none of those asked for: {request.needs}"
            answer = Answer(request.id, FAILED, place=facts.place, detail=detail)
        counted_by_ray(request, answer)
        return answer
