"""Inputs of tasks, recorded from one run of their program: realistic values, valid indices and bounds.

For values of the entry computation, what leads to them runs as a module of its own. A loop's body gets the
values with which the loop begins, and so on inwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError, UnsupportedModuleError
from graphopt.hlo.module.index import ComputationIndex, ModuleIndex, Role
from graphopt.hlo.module.schedule import read_schedule
from graphopt.tasks.cutting import Task
from graphopt.tasks.extract import Place, extract

Array = np.ndarray[Any, Any]

Run = Callable[[bytes, list[Array]], list[Array]]
"""Compiles and runs a module on inputs; returns its results."""


@dataclass
class Recorder:
    """Values of one program in one run.

    Attributes:
        module: the program's.
        arguments: one array per parameter.
        run: compiles and runs a part of it.
    """

    module: ModuleIndex
    arguments: Sequence[Array]
    run: Run
    known: dict[Place, Array] = field(default_factory=dict)

    def of(self, tasks: Iterable[Task]) -> list[list[Array]]:
        """Inputs of some tasks, in the order of their parameters.

        Raises:
            UnsupportedModuleError: a value cannot be recorded.
            MeasureError: what leads to one cannot run by itself.
        """
        tasks = list(tasks)
        self.record({place for task in tasks for place in task.inputs})
        return [[self.value(place) for place in task.inputs] for task in tasks]

    def of_each(self, tasks: Iterable[Task]) -> list[list[Array] | None]:
        """Inputs of each task, None where they cannot be recorded; all at once if that goes well."""
        tasks = list(tasks)
        try:
            return list(self.of(tasks))
        except GraphOptError:
            return [self._of_one(task) for task in tasks]

    def _of_one(self, task: Task) -> list[Array] | None:
        try:
            return self.of([task])[0]
        except GraphOptError:
            return None

    def value(self, place: Place) -> Array:
        """A value that was recorded."""
        return self.known[_resolved(self.module, place)]

    def record(self, places: set[Place]) -> None:
        """Runs what leads to some values; each computation once.

        Raises:
            UnsupportedModuleError: a value cannot be recorded.
        """
        by_computation: dict[int, list[Place]] = {}
        resolved = {_resolved(self.module, place) for place in places}
        for place in sorted(resolved - self.known.keys()):
            by_computation.setdefault(place[0], []).append(place)
        for computation, wanted in by_computation.items():
            self._record_in(self.module.computations[computation], wanted)

    def _record_in(self, computation: ComputationIndex, wanted: list[Place]) -> None:
        given = [place for place in wanted if computation.by_id[place[1]].opcode == "parameter"]
        self._bring_in(computation, given)
        wanted = [place for place in wanted if place not in self.known]
        if not wanted:
            return
        order = read_schedule(self.module)[computation.id]
        members = _leading_to(computation, [local for _, local, _ in wanted], order)
        part = extract(
            self.module, computation.id, members, [(local, path) for _, local, path in wanted]
        )
        sources = [_resolved(self.module, place) for place in part.inputs]
        self._bring_in(computation, sources)
        inputs = [self.known[place] for place in sources]
        for place, value in zip(wanted, self.run(part.data, inputs), strict=True):
            self.known[place] = value

    def _bring_in(self, computation: ComputationIndex, places: Iterable[Place]) -> None:
        """Values of a computation's parameters, from where it is called."""
        outer: dict[Place, Place] = {}
        for place in places:
            _, local, path = place
            instruction = computation.by_id[local]
            if place in self.known:
                continue
            if instruction.opcode != "parameter":
                raise _cannot(f"{instruction.name} is no input", computation)
            number = instruction.proto.parameter_number
            if computation.role is Role.ENTRY:
                self.known[place] = self.arguments[number]
            else:
                outer[place] = (*self._passed(computation, number), path)
        self.record(set(outer.values()))
        for inner, source in outer.items():
            self.known[inner] = self.value(source)

    def _passed(self, computation: ComputationIndex, number: int) -> tuple[int, int]:
        """(computation, local id) of the value that a caller passes for a parameter."""
        if computation.caller is None:
            raise _cannot("it is called from several places", computation)
        local, owner = computation.caller
        call = self.module.computations[owner].by_id[local]
        if call.opcode == "conditional":
            number = 1 + call.called.index(computation.id)
        return owner, call.operands[number]


def _resolved(module: ModuleIndex, place: Place) -> Place:
    """The place at which a value is made, looked for through tuples and their parts."""
    computation, local, path = place
    by_id = module.computations[computation].by_id
    while True:
        instruction = by_id[local]
        if instruction.opcode == "get-tuple-element":
            local, path = instruction.operands[0], (instruction.proto.tuple_index, *path)
        elif instruction.opcode == "tuple" and path:
            local, path = instruction.operands[path[0]], path[1:]
        else:
            return computation, local, path


def _leading_to(
    computation: ComputationIndex, results: list[int], order: dict[int, int]
) -> list[int]:
    """Instructions that some values depend on, in their order in the schedule."""
    found: set[int] = set()
    stack = list(results)
    while stack:
        local = stack.pop()
        if local not in found:
            found.add(local)
            instruction = computation.by_id[local]
            stack += [*instruction.operands, *instruction.control]
    parameters = {local for local in found if computation.by_id[local].opcode == "parameter"}
    return sorted(found - parameters, key=order.__getitem__)


def _cannot(what: str, computation: ComputationIndex) -> UnsupportedModuleError:
    return UnsupportedModuleError(
        what=what,
        where=str(computation.proto.name),
        fix="nothing to do: tasks there are measured on made-up inputs",
        rule="no-inputs",
    )
