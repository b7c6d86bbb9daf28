"""The environment on alternatives: one program or task per episode, one choice at one site per step."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.env.alternatives_view import View, observation_space
from graphopt.env.arguments import bad_argument, check_render_mode, edge_count, fitting, pick_graph
from graphopt.env.drawing import RENDER_MODES, draw, explained
from graphopt.env.rewards import DEFAULT_SOURCE, RewardSource, find_source
from graphopt.env.sources import DEFAULT_GRAPHS, GraphItem, GraphSources, load_graphs
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.measure.scoring import Scorer
from graphopt.policy.alternatives.table import AlternativeTable, alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.tasks.cutting import cut, distinct

STARTS: Final = ("default", "heuristic")
"""Decisions that an episode may begin with: XLA's own, or the hand-written heuristic's."""

ALTERNATIVES: Final = 256
"""Alternatives of a graph, STOP included, unless the environment is made with another number."""

Step = tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]


class AlternativesEnv(gymnasium.Env[dict[str, NDArray[Any]], np.int64]):
    """Improve the fusion and placement of a program or task, one alternative at one site per step.

    ## Description

    The graph of a program that ``jax.jit`` compiles, or of a task cut out of one (a loop with its body, a
    run of kernels), has sites: loops, runs of kernels, kernels, values, operations. At each, alternatives
    say what may be done there, with everything that it entails. An action chooses one; the graph shows the
    new decisions; STOP ends the episode. Every alternative is legal: any sequence of them is a module that
    compiles and computes the same results.

    Axis letters: M rows of nodes, P rows of edges, A alternatives, D node features, G edge features, K
    features of an alternative. All sizes are fixed when the environment is made.

    ## Observation space

    ``spaces.Dict``:

    | key | shape, dtype | meaning |
    | --- | --- | --- |
    | ``nodes`` | [M, D] float32 in [0, 1] | operation, and what is decided for it: `NODE_FEATURES` |
    | ``node_mask`` | [M] float32 | 1: the row is a node |
    | ``edges`` | [P, G] float32 in [0, 1] | `graphopt.env.observation.EDGE_FEATURES` |
    | ``edge_links`` | [P, 2] int32 | source and target node; 0, 0 for rows without an edge |
    | ``edge_mask`` | [P] float32 | 1: the row is an edge |
    | ``alternatives`` | [A, K] float32 in [0, 1] | kind and weight: `ALTERNATIVE_FEATURES` |
    | ``alternative_nodes`` | [A] int32 | the node at which it stands; 0 for STOP and rows without one |
    | ``action_mask`` | [A] float32 | 1: the alternative is there and would change something |
    | ``program`` | [4] float32 in [0, 1] | `PROGRAM_FEATURES` |

    The columns' names stand in `graphopt.env.alternatives_view`.

    ## Action space

    ``Discrete(A)``: 0 is STOP, i the alternative in row i, heaviest first by the cost model. Rows are fixed
    within an episode. `action_masks` and ``info["action_mask"]`` give the mask (bool [A], True = allowed),
    in the manner of sb3-contrib. STOP is always allowed. A masked action changes nothing and is counted in
    ``info["ignored"]``, so that a library without masks can train; with ``strict`` it raises.

    ## Rewards

    The return of an episode is log(time at the start / time at the end). By default it comes with the last
    step, and the others give 0: only the final decisions are scored. With ``dense``, every step gives what
    it changed, which costs a score per step. Decisions without a time (their compile failed) count as the
    source's ``failure``. Sources are those of `graphopt.env.rewards.SOURCES`: ``analytic`` (a formula),
    ``bank``, ``model``, ``measured`` (compiled, checked and timed in a child process).

    ## Starting state

    `reset` picks a graph uniformly with the environment's random generator, or ``options={"graph": index or
    name}``. The decisions are XLA's own (``start="default"``) or the hand-written heuristic's
    (``"heuristic"``).

    ## Episode end

    STOP terminates, and so does the last of ``horizon`` steps: the horizon is part of the task, and
    ``program`` shows how much of it is over. An episode is never truncated.

    ## Information

    Always the same keys: ``graph`` (name), ``nodes``, ``alternatives`` (rows in use), ``left_out``
    (lighter alternatives that found no row; make the environment with more), ``action_mask``, ``chosen``
    (name of the step's alternative; empty if it was masked, and at a reset), ``ignored`` (1: it was
    masked), ``scored`` (1: the next three are of these decisions, else of those scored last), ``score``
    (log(XLA's time / time)), ``seconds`` (inf if there is no time), ``failure`` (why; else empty).

    ## Arguments

    ```python
    import gymnasium, graphopt.env
    env = gymnasium.make("graphopt/FusionPlacement-v1", graphs=["layernorm", "lstm"], tasks=True)
    ```

    * ``graphs``: graphs, programs, names of built-in programs, ``pkg.module:WORKLOADS``, or a split of the
      corpus.
    * ``tasks``: cut every graph into tasks; equal ones count once.
    * ``reward``, ``dense``, ``start``, ``horizon``, ``strict``: see above.
    * ``alternatives``: A.
    * ``max_nodes``: M; larger graphs are left out. The largest graph's nodes by default.
    * ``max_edges``: P; graphs with more are left out. The largest number by default.
    * ``render_mode``: ``ansi`` (text), ``rgb_array`` (a picture) or ``html`` (a page).

    ## Version history

    * v1: alternatives; v0 (`FusionPlacementEnv`) decides everything at once and stays as it is
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        graphs: GraphSources = DEFAULT_GRAPHS,
        *,
        tasks: bool = False,
        reward: str | RewardSource = DEFAULT_SOURCE,
        dense: bool = False,
        start: str = "default",
        horizon: int = 32,
        strict: bool = False,
        alternatives: int = ALTERNATIVES,
        max_nodes: int | None = None,
        max_edges: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Loads the graphs; see the class for the arguments.

        Raises:
            ConfigError: an argument has no usable value, or no graph is small enough.
            WorkloadError: a program cannot be found or built.
        """
        if horizon < 1 or alternatives < 2:
            raise bad_argument(
                "horizon, alternatives", f"{horizon} steps, {alternatives} alternatives"
            )
        if start not in STARTS:
            raise bad_argument("start", f"{start!r} is none of {', '.join(STARTS)}")
        check_render_mode(render_mode, RENDER_MODES)
        loaded = load_graphs(graphs)
        items = _tasks_of(loaded) if tasks else loaded
        self.items = fitting(items, max_nodes, max_edges)
        self.source = find_source(reward)
        self.dense, self.start, self.horizon, self.strict = dense, start, horizon, strict
        self.render_mode = render_mode
        self.whole = not tasks
        self.rows = alternatives
        nodes = max_nodes or max(len(item.graph) for item in self.items)
        edges = max_edges or max(edge_count(item.graph) for item in self.items)
        self.observation_space: Any = observation_space(nodes, max(1, edges), alternatives)
        self.action_space: Any = spaces.Discrete(alternatives)
        self._contexts: list[_Context | None] = [None] * len(self.items)
        self._at: int | None = None
        self._steps = 0
        self._last = _XLA
        self._shown: View | None = None
        self._over = True
        self._owner = True

    @property
    def _context(self) -> _Context:
        if self._at is None:
            raise bad_argument("environment", "there is no episode yet", "Call reset first.")
        context = self._contexts[self._at]
        if context is None:
            context = self._contexts[self._at] = _Context(self, self.items[self._at])
        return context

    @property
    def _view(self) -> View:
        if self._shown is None:
            raise bad_argument("environment", "there is no episode yet", "Call reset first.")
        return self._shown

    @property
    def graph(self) -> Graph:
        """The graph at hand."""
        return self._context.item.graph

    @property
    def table(self) -> AlternativeTable:
        """The alternatives of the graph at hand, row by row."""
        return self._context.table

    @property
    def decisions(self) -> Decisions:
        """What is decided at this point of the episode."""
        return self.table.decisions(self._view.flat)

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [A]; alternatives that there are and that would change something; a fresh array."""
        out = np.zeros(self.rows, np.bool_)
        out[: len(self._view.mask)] = self._view.mask
        return out

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: of the random generator that picks graphs.
            options: ``{"graph": index or name}`` picks one.

        Raises:
            ConfigError: there is no such graph.
        """
        super().reset(seed=seed)
        self._at = pick_graph(self.items, (options or {}).get("graph"), self.np_random)
        self._steps, self._over = 0, False
        self._last = self._context.start_score
        self._shown = self._context.view()
        self._shown.begin(self._context.start)
        return self._shown.observe(), self._info("", False, self._last != _XLA)

    def step(self, action: Any) -> Step:
        """Chooses an alternative; see the class.

        Raises:
            ConfigError: the episode is over, the action is none, or, if strict, it is masked.
        """
        if self._over:
            raise bad_argument("environment", "the episode is over", "Call reset first.")
        index = _index(action, self.rows)
        view = self._view
        there = index < len(view.mask) and bool(view.mask[index])
        if not there and self.strict:
            raise bad_argument("action", f"alternative {index} is masked", "See action_masks().")
        self._steps += 1
        view.choose(index if there else 0, self._steps / self.horizon)
        self._over = (there and index == 0) or self._steps >= self.horizon
        scored, before = self._over or self.dense, self._last.score
        if scored:
            self._last = self._context.score(self.decisions)
        info = self._info(self.table.rows[index].name if there else "", not there, scored)
        return view.observe(), self._last.score - before, self._over, False, info

    def _info(self, chosen: str, ignored: bool, scored: bool) -> dict[str, Any]:
        return {
            "graph": self._context.item.name,
            "nodes": len(self.graph),
            "alternatives": len(self.table),
            "left_out": self.table.left_out,
            "action_mask": self.action_masks(),
            "chosen": chosen,
            "ignored": int(ignored),
            "scored": int(scored),
            "score": self._last.score,
            "seconds": self._last.seconds,
            "failure": self._last.failure,
        }

    def fork(self) -> AlternativesEnv:
        """An independent copy in the same state; it shares graphs and what the scorers remember."""
        other = copy.copy(self)
        if self._shown is not None:
            other._shown = self._shown.fork()
        other.action_space = copy.deepcopy(self.action_space)
        other.observation_space = copy.deepcopy(self.observation_space)
        other._np_random = copy.deepcopy(self._np_random)
        other._owner = False
        return other

    def explanation(self) -> Any:
        """What the decisions change and why: a `graphopt.render.Explanation`."""
        return explained(self._context.item, self.decisions, self.source)

    def render(self) -> Any:
        """Default against chosen clusters, in the render mode."""
        return draw(self.render_mode, self.explanation)

    def close(self) -> None:
        """Ends what the scorers hold (processes, files); a fork leaves that to its original."""
        if self._owner:
            for context in self._contexts:
                if context is not None:
                    context.close()


@dataclass(frozen=True)
class _Scored:
    """What a source says of decisions.

    Attributes:
        score: log(XLA's time / time).
        seconds: inf if there is no time.
        failure: why there is none.
    """

    score: float
    seconds: float
    failure: str


_XLA: Final = _Scored(0.0, float("inf"), "")
"""XLA's own decisions before anything is scored: what is measured is measured against them."""


class _Context:
    """What one graph needs, made at its first episode."""

    def __init__(self, env: AlternativesEnv, item: GraphItem) -> None:
        self.item = item
        self.source = env.source
        graph = item.graph
        model = CostModel(graph)
        self.table = alternatives(graph, model, limit=env.rows - 1, program=env.whole)
        heuristic = env.start == "heuristic"
        self.begin = heuristic_steps(graph, STEPS, model) if heuristic else graph.default
        self.start = self.table.flat(self.begin)
        ns = model.computations[-1].default_ns(model.cores)
        self._view = View(graph, self.table, ns, env.observation_space)
        self._scorer: Scorer | None = None
        self._start_score = None if heuristic else _XLA

    def view(self) -> View:
        """A view of its own for an episode; what never changes is shared."""
        return copy.copy(self._view)

    @property
    def start_score(self) -> _Scored:
        """Of the decisions at the start."""
        if self._start_score is None:
            self._start_score = self.score(self.begin)
        return self._start_score

    def score(self, decisions: Decisions) -> _Scored:
        """Asks the source about decisions."""
        if self._scorer is None:
            self._scorer = self.source.scorer(self.item.graph, self.item.program)
        scores = self._scorer.score(DecisionBatch.stack([decisions]))
        seconds = float(scores.seconds[0])
        if np.isnan(seconds):
            return _Scored(self.source.failure, float("inf"), scores.reasons[0] or "")
        return _Scored(float(np.log(self._scorer.default_s / seconds)), seconds, "")

    def close(self) -> None:
        """Ends what the scorer holds; it is made again when it is needed again."""
        scorer, self._scorer = self._scorer, None
        end = getattr(scorer, "close", None)
        if end is not None:
            end()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_scorer": None}


def _tasks_of(items: tuple[GraphItem, ...]) -> tuple[GraphItem, ...]:
    """The tasks of some graphs, each once."""
    found: dict[str, GraphItem] = {}
    for item in items:
        for tasks in distinct(cut(item.graph)).values():
            task = tasks[0]
            name = f"{item.name}/{task.name}"
            found.setdefault(task.fingerprint, GraphItem(name, task.graph))
    if not found:
        raise bad_argument("tasks", "no graph has a part that can stand alone")
    return tuple(found.values())


def _index(action: Any, rows: int) -> int:
    array = np.asarray(action)
    if array.size != 1 or array.dtype.kind not in "iu" or not 0 <= int(array.reshape(())) < rows:
        raise bad_argument("action", f"{action!r} is no number from 0 to {rows - 1}")
    return int(array.reshape(()))
