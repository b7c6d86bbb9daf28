"""Tasks on their way through an executor: what was asked, what came back, what is asked next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphopt.executing.request import Answer, Needs, Request
from graphopt.learn.collecting.duel_requests import FATAL, GIVE_UP, duels_request, held
from graphopt.learn.collecting.duelling import Collector, Experiment, Row

Known = Callable[[str], bool]
"""Whether the duel of a key is held already, or on its way."""


class TaskRun:
    """The experiments of one task: singles first, the gains together once all have come back.

    Attributes:
        name: of task and program, for people.
        collector: lists the experiments.
        program: whose task it is, as it was named for this run.
        left: true once too many vectors in a row were fatal: nothing more is asked.
        incomplete: true once a duel was given up: which gains there are together is not known.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        inputs: tuple[bytes, ...],
        needs: Needs,
        known: Known,
        gains: Mapping[str, float],
        program: str = "",
    ) -> None:
        """Asks for nothing yet.

        Args:
            name: of task and program.
            collector: of the task.
            inputs: packed inputs of the task.
            needs: machines whose times count.
            known: duels that are not to be held.
            gains: key -> log ratio of duels that gained beyond doubt, as they become known.
            program: whose task it is.
        """
        self.name, self.collector, self.program = name, collector, program
        self.left = self.incomplete = False
        self._inputs, self._needs, self._known, self._gains = inputs, needs, known, gains
        self._asked: dict[str, tuple[Experiment, ...]] = {}
        self._fatal = 0
        self._closed = False

    def singles(self, batch: int) -> Iterator[Request]:
        """Requests for every experiment that is not known, so many in each."""
        todo = [e for e in self.collector.singles() if not self._known(self.collector.key(e))]
        for first in range(0, len(todo), batch):
            yield self._request(tuple(todo[first : first + batch]))

    def take(self, answer: Answer) -> list[Row]:
        """Rows of an answer to one of its requests.

        Raises:
            MeasureError: the task cannot be measured.
            ExecutorError: the request failed.
        """
        experiments = self._asked.pop(answer.id)
        rows = []
        for experiment, duel in zip(experiments, held(answer), strict=False):
            self._fatal = self._fatal + 1 if duel.status in FATAL else 0
            self.left = self.left or self._fatal >= GIVE_UP
            rows.append(self.collector.duel_row(experiment, duel))
        return rows

    def together(self) -> Request | None:
        """The last request, of all gains at once; None while others are outstanding or if there is none."""
        if self._asked or self.left or self.incomplete or self._closed:
            return None
        self._closed = True
        last = self.collector.together(self._gains)
        if last is None or self._known(self.collector.key(last)):
            return None
        return self._request((last,))

    def apart(self, answer: Answer) -> list[Request]:
        """A request for each duel of one of its requests that was lost; none if it held one duel alone.

        What kills its process should not take others with it, nor should they wait for many kills by chance.
        """
        if len(self._asked[answer.id]) < 2:
            return []
        return [self._request((experiment,)) for experiment in self._asked.pop(answer.id)]

    def keys(self, of: Request | Answer) -> list[str]:
        """Keys of the duels of one of its requests."""
        return [self.collector.key(experiment) for experiment in self._asked[of.id]]

    def forget(self, request: Request) -> list[str]:
        """Takes note that a request was dropped before it had begun; the keys of its duels."""
        keys = self.keys(request)
        del self._asked[request.id]
        return keys

    @property
    def outstanding(self) -> bool:
        """True if an answer is to come."""
        return bool(self._asked)

    def _request(self, experiments: tuple[Experiment, ...]) -> Request:
        task = self.collector.task
        pairs = [self.collector.pair(experiment) for experiment in experiments]
        request = duels_request(task.graph, task.data, self._inputs, pairs, self._needs, self.name)
        self._asked[request.id] = experiments
        return request
