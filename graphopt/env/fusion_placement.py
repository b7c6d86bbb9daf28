"""The environment: decide fusion and placement of every node of an HLO graph."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from graphopt.env.actions import ActionCodec, DecisionSpace, field_sizes
from graphopt.env.arguments import bad_argument, check_render_mode, fitting, pick_graph
from graphopt.env.context import GraphContext, info_of
from graphopt.env.drawing import RENDER_MODES, draw, explained
from graphopt.env.episode import EnvState, Episode, Statistics
from graphopt.env.observation import EDGE_FEATURES, GraphFeatures, feature_names
from graphopt.env.rewards import (
    DEFAULT_SOURCE,
    RewardSource,
    find_scale,
    find_source,
    rewards_of,
)
from graphopt.env.sources import DEFAULT_GRAPHS, GraphSources, load_graphs
from graphopt.env.validation import Validation, validate
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.measure.plans import Outcome, planned
from graphopt.measure.scoring import Scorer, Scores

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class FusionPlacementEnv(gymnasium.Env[Any, Any]):
    """Decide, for every node of a captured XLA graph, what is fused and which unit computes it.

    ## Description

    A program that ``jax.jit`` compiles becomes a graph of HLO operations. XLA's fusion and
    placement of it are the starting point; an action decides both anew for all nodes at once; the
    reward is the improvement of the module's time over XLA's default. Legality is settled
    beforehand: masks say which values a node may take, and any choice inside them is a module that
    compiles and computes the same results.

    Axis letters: N nodes of the graph at hand, M rows of the action space (nodes of the largest
    graph), L edges, D node features, G edge features, F decision fields
    (`graphopt.hlo.graph.decisions.FIELDS`), V largest number of values of a field.

    ## Observation space

    ``spaces.Graph``; an observation is a ``GraphInstance``:

    | field | shape, dtype | meaning |
    | --- | --- | --- |
    | ``nodes`` | [N, D] float32 in [0, 1] | node features; `node_features` names the columns |
    | ``edges`` | [L, G] float32 in [0, 1] | edge features; `edge_features` names the columns |
    | ``edge_links`` | [L, 2] int32 | source and target node of each edge; values flow from source to target |

    Node features, in order: the operation (``opcode``: code / largest code of
    `graphopt.hlo.module.opcodes.OPS`; ``kind_*``: one of six kinds; ``dtype``: XLA's number / the largest;
    ``elements``, ``bytes`` of the result, ``executions`` per run of the module, ``users``,
    ``operands``: log2(1 + x) / 40; ``rank`` / 8; ``cost`` per element in additions / 32;
    ``expensive``: XLA never recomputes it; ``is_root``: a computation returns its value); then for
    every field and value three groups of 0/1 columns: ``legal_*`` (the mask, 1 = allowed),
    ``default_*`` (XLA's decision) and ``chosen_*`` (the previous step's decision, at first XLA's);
    then ``overridden`` (1: interactions settled a decision of the previous step for this node),
    ``progress`` (steps taken / horizon, the same for all nodes) and ``score`` (previous reward on
    its scale, clipped to [-4, 4], as (x + 4) / 8, the same for all nodes).

    Edge features: see `graphopt.env.observation.EDGE_FEATURES`.

    ## Action space

    `DecisionSpace`, a ``MultiDiscrete`` of shape [M, F], int64: one value per node and field. Rows
    N..M-1 are ignored. Also taken: the first N rows alone, the flattened array, or
    `graphopt.Decisions`.

    | field | value | meaning |
    | --- | --- | --- |
    | ``fuse`` | 0 / 1 | the value is written to memory / computed inside every cluster that uses it |
    | ``join`` | 0 / 1 | a root keeps its own cluster / becomes a further output of another |
    | ``unit`` | index into ``graph.units`` | execution unit of the cluster rooted here |

    ``action_space.sample()`` draws legal actions of the graph at hand. `action_masks` and
    ``info["action_mask"]`` give the masks. Masks belong to a graph: an action drawn before a
    `reset` that picks another graph may be illegal afterwards, and the batched space of a vector
    environment knows no masks. There, use the masks in ``info``, or ``strict=False``.

    Bad actions raise `DecisionError` before anything is scored: a wrong shape, a dtype that holds
    no integers (NaN included), a value that no field has, and, with ``strict``, a value that a rule
    forbids, by the rule's name. Without ``strict`` a forbidden value becomes XLA's own for that
    node and is counted in ``info["replaced"]``.

    ## Rewards

    The score of decisions is log(default time / time) (``scale="log_ratio"``) or the share of time
    saved (``"saved_share"``); a vector without a time (its compile failed) scores the source's
    ``failure``. The reward of a step is its score minus that of the step before (0 at first): the
    undiscounted return of an episode is the score of its last decisions.

    Times come from a reward source (`graphopt.env.rewards.SOURCES`), which declares whether it is
    deterministic, what it costs, and its value on failure: ``analytic`` (a formula, the same
    everywhere), ``bank`` (measured kernels from the user's store, the others predicted), ``model`` (all
    predicted), ``measured`` (every vector compiled, checked and timed in a child process).

    ## Starting state

    `reset` picks a graph uniformly with the environment's random generator, or ``options={"graph":
    index or name}``. The observation shows XLA's own decisions.

    ## Episode end

    ``horizon=1``: one decision of everything. ``horizon=T > 1``: refinement; every step decides
    everything anew and sees the previous outcome. The episode terminates after T steps: the horizon
    is part of the task, and ``progress`` shows it. It is never truncated.

    ## Information

    ``graph`` (name), ``nodes``, ``default_s``, ``action_mask`` (bool [M, F, V], True = allowed; rows
    without a node allow the value 0 only); of the last decisions, at first XLA's: ``seconds`` (inf if
    it failed), ``speedup``, ``score``, ``changed`` (decisions that differ from XLA's), ``replaced``,
    ``failure`` (why there is no time; empty if there is), and with ``details``: ``clusters``,
    ``regions``, ``overrides`` (every rule of `graphopt.hlo.plan.interactions.SETTLED` -> decisions
    that it settled). The keys are always the same. Equal steps have equal information; what depends
    on the past of the process (how much was compiled and timed, how much answered from memory) is in
    `statistics`.

    ## Arguments

    ```python
    import gymnasium, graphopt.env
    env = gymnasium.make("graphopt/FusionPlacement-v0", graphs=["layernorm", "lstm"], horizon=4)
    ```

    * ``graphs``: graphs, programs, names of built-in programs, ``pkg.module:WORKLOADS``, or a split
      of the corpus.
    * ``reward``: name of a reward source, or a `RewardSource`.
    * ``scale``: ``log_ratio`` or ``saved_share``.
    * ``horizon``: steps of an episode.
    * ``strict``: refuse forbidden values.
    * ``details``: plan the clusters of every step, for ``info`` and ``overridden`` (a few
      microseconds per node, nothing if the source plans them too).
    * ``max_nodes``: leave out larger graphs; rows of the action space.
    * ``render_mode``: ``ansi`` (text), ``rgb_array`` (a picture) or ``html`` (a page): default
      against chosen clusters.

    Beyond the interface of Gymnasium: `statistics`, `fork`, `state` and `apply`, `validate`,
    `score_batch`, `explanation`.

    ## Version history

    * v0: first version
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012 - gymnasium's
    _max_edges: int | None = None

    def __init__(
        self,
        graphs: GraphSources = DEFAULT_GRAPHS,
        *,
        reward: str | RewardSource = DEFAULT_SOURCE,
        scale: str = "log_ratio",
        horizon: int = 1,
        strict: bool = True,
        details: bool = True,
        max_nodes: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Loads the graphs; see the class for the arguments.

        Raises:
            ConfigError: an argument has no usable value, or no graph is small enough.
            WorkloadError: a program cannot be found or built.
        """
        if horizon < 1:
            raise bad_argument("horizon", f"an episode has at least one step, not {horizon}")
        check_render_mode(render_mode, RENDER_MODES)
        self.items = fitting(load_graphs(graphs), max_nodes, self._max_edges)
        self.source = find_source(reward)
        self.scale = scale
        self._scale = find_scale(scale)
        self.horizon = horizon
        self.strict = strict
        self.details = details
        self.render_mode = render_mode
        self.rows = max_nodes or max(len(item.graph) for item in self.items)
        self.sizes = field_sizes(item.graph for item in self.items)
        self.statistics = Statistics()
        self._owner = True
        self._episode: Episode | None = None
        self._make_spaces()
        self._contexts = tuple(GraphContext(i, self.sizes, self.source) for i in self.items)

    def _make_spaces(self) -> None:
        self.action_space = DecisionSpace(self.rows, self.sizes)
        self.observation_space = spaces.Graph(
            spaces.Box(0.0, 1.0, (len(self.node_features),), np.float32),
            spaces.Box(0.0, 1.0, (len(EDGE_FEATURES),), np.float32),
        )

    @property
    def node_features(self) -> tuple[str, ...]:
        """D entries; names of the node features, in column order."""
        return feature_names(self.sizes)

    @property
    def edge_features(self) -> tuple[str, ...]:
        """G entries; names of the edge features, in column order."""
        return EDGE_FEATURES

    @property
    def graph(self) -> Graph:
        """The graph at hand.

        Raises:
            ConfigError: the environment has not been reset.
        """
        return self._context.item.graph

    @property
    def decisions(self) -> Decisions:
        """The last decisions of the episode; before the first step XLA's own."""
        history = self._current.history
        return history[-1] if history else self.graph.default

    @property
    def scorer(self) -> Scorer:
        """The scorer of the graph at hand."""
        return self._context.scorer

    @property
    def codec(self) -> ActionCodec:
        """Translates actions of the graph at hand."""
        return self._context.codec

    @property
    def features(self) -> GraphFeatures:
        """Observations of the graph at hand, as far as they never change."""
        return self._context.features

    @property
    def _context(self) -> GraphContext:
        return self._contexts[self._current.graph]

    @property
    def _current(self) -> Episode:
        if self._episode is None:
            raise bad_argument("environment", "there is no episode yet", "Call reset first.")
        return self._episode

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [M, F, V]; legal values of the graph at hand, True = allowed; a fresh array.

        Rows without a node allow the value 0 only.
        """
        return self.codec.padded_mask(self.rows)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: of the random generator that picks graphs.
            options: ``{"graph": index or name}`` picks one.

        Raises:
            ConfigError: there is no such graph.
        """
        super().reset(seed=seed)
        self._begin(pick_graph(self.items, (options or {}).get("graph"), self.np_random))
        return self._observe(None), self._info(self.scorer.default_s, "", 0, self._outcome())

    def _begin(self, index: int) -> None:
        self._episode = Episode(index)
        if isinstance(self.action_space, DecisionSpace):
            self.action_space.allow(self.codec.padded_mask(self.rows))

    def step(self, action: Any) -> Step:
        """Scores an action; see the class.

        Raises:
            DecisionError: the action does not fit the graph or its masks.
            ConfigError: the episode is over.
        """
        episode = self._current
        if episode.over:
            raise bad_argument("environment", "the episode is over", "Call reset first.")
        decisions, replaced = self.codec.decode(action, self.rows, self.strict)
        scores = self._score(DecisionBatch.stack([decisions]))
        score = float(self._rewards(scores)[0])
        steps = len(episode.history) + 1
        self._episode = Episode(
            episode.graph, (*episode.history, decisions), score, over=steps >= self.horizon
        )
        outcome = self._outcome()
        info = self._info(float(scores.seconds[0]), scores.reasons[0] or "", replaced, outcome)
        reward, over = score - episode.score, self._episode.over
        return self._observe(outcome), reward, over, False, info

    def _outcome(self) -> Outcome | None:
        return planned(self.graph, self.decisions) if self.details else None

    def _score(self, batch: DecisionBatch) -> Scores:
        scores = self.scorer.score(batch)
        self.statistics = self.statistics.after(scores)
        return scores

    def _rewards(self, scores: Scores) -> NDArray[np.float64]:
        return rewards_of(scores, self.scorer.default_s, self._scale, self.source.failure)

    def _nodes(self, outcome: Outcome | None) -> NDArray[np.float32]:
        episode = self._current
        if not episode.history:
            return self.features.nodes.copy()
        overridden = [] if outcome is None else [n for n, _ in outcome.clustering.overrides]
        progress = len(episode.history) / self.horizon
        return self.features.nodes_after(episode.history[-1], overridden, progress, episode.score)

    def _observe(self, outcome: Outcome | None) -> Any:
        return self.features.instance(self._nodes(outcome))

    def _info(
        self, seconds: float, failure: str, replaced: int, outcome: Outcome | None
    ) -> dict[str, Any]:
        said = (self.decisions, seconds, self._current.score, failure, replaced, outcome)
        return info_of(self._context, *said) | {"action_mask": self.action_masks()}

    def render(self) -> Any:
        """Default against chosen clusters, in the render mode: text, a picture or a page."""
        return draw(self.render_mode, self.explanation)

    def close(self) -> None:
        """Ends what the scorers hold (processes, files); a fork leaves that to its original."""
        if self._owner:
            for context in self._contexts:
                context.close()

    # Beyond it.

    def score_batch(self, batch: DecisionBatch) -> NDArray[np.float64]:
        """float64 [B]; scores of B decision vectors of the graph at hand. The episode does not
        move.

        Raises:
            DecisionError: the batch does not fit the graph or, with ``strict``, its masks.
        """
        checked, _ = self.codec.check_batch(batch, self.strict)
        return self._rewards(self._score(checked))

    def fork(self) -> FusionPlacementEnv:
        """An independent copy in the same state; it shares graphs and what the scorers remember."""
        other = copy.copy(self)
        other.action_space = copy.deepcopy(self.action_space)
        other.observation_space = copy.deepcopy(self.observation_space)
        other._np_random = copy.deepcopy(self._np_random)
        other._owner = False  # the scorers end with the environment that was forked
        return other

    @property
    def state(self) -> EnvState:
        """Where the episode stands, by value."""
        item, episode = self._context.item, self._current
        return EnvState(item.name, item.graph.fingerprint, episode.history, episode.score)

    def apply(self, state: EnvState) -> Step | None:
        """Begins an episode on the state's graph and replays its decisions.

        Returns:
            What the last step returned (with nothing replaced: a state holds legal decisions); None
            for a state without steps.

        Raises:
            ConfigError: the graph is not here, is another version, or the history is longer than
                the horizon.
        """
        index = pick_graph(self.items, state.graph, self.np_random)
        state.check(self.items[index].graph)
        state.check_horizon(self.horizon)
        self._begin(index)
        last = None
        for decisions in state.history:
            last = self.step(decisions)
        return last

    def validate(self) -> Validation:
        """Compiles and runs the program by default and under the last decisions, and compares
        results.

        Raises:
            ConfigError: the graph at hand has no program.
        """
        return validate(self._context.item, self.decisions)

    def explanation(self) -> Any:
        """What the last decisions change and why: a `graphopt.render.Explanation`."""
        return explained(self._context.item, self.decisions, self.source)
