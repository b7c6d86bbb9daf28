"""The environment with observations and actions of fixed size, for libraries that know no
graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from graphopt.env.arguments import edge_count
from graphopt.env.fusion_placement import FusionPlacementEnv
from graphopt.env.observation import EDGE_FEATURES
from graphopt.env.sources import DEFAULT_GRAPHS, GraphSources
from graphopt.measure.plans import Outcome


class FusionPlacementPaddedEnv(FusionPlacementEnv):
    """`FusionPlacementEnv` with padded observations, a flat action and a flat action mask.

    ## Description

    The same decisions, rewards, episodes, information and arguments as `FusionPlacementEnv`, which
    describes them. Every observation and action has the size of the largest graph, so that a stock
    library (stable-baselines3, CleanRL, RLlib) trains on it unchanged, with or without action
    masks.

    Axis letters: M rows (nodes of the largest graph, or ``max_nodes``), P edges (of the largest
    graph, or ``max_edges``), D node features, G edge features, F decision fields, S values of all
    fields together.

    ## Observation space

    ``spaces.Dict``:

    | key | shape, dtype | meaning |
    | --- | --- | --- |
    | ``nodes`` | [M, D] float32 in [0, 1] | node features, 0 for rows without a node |
    | ``node_mask`` | [M] int8 | 1: the row is a node |
    | ``edges`` | [P, G] float32 in [0, 1] | edge features, 0 for rows without an edge |
    | ``edge_links`` | [P, 2] int32 | source and target node; 0, 0 for rows without an edge |
    | ``edge_mask`` | [P] int8 | 1: the row is an edge |
    | ``action_mask`` | [M * S] int8 | 1: the value is allowed |

    ## Action space

    ``MultiDiscrete`` of M * F values: row by row, within a row field by field. Values of rows
    without a node are ignored. By default forbidden values become XLA's own for that node and are
    counted in ``info["replaced"]``, so that a library without masks can train; ``strict=True``
    refuses them with `DecisionError`.

    The action mask lists, for every row and field, its values in a line (the order that
    sb3-contrib's ``MaskablePPO`` expects of `action_masks`); rows without a node allow the value 0
    only.

    ## Arguments

    Those of `FusionPlacementEnv` (``strict`` is False here), and ``max_edges``: rows for edges;
    graphs with more are left out.

    ## Version history

    * v0: first version
    """

    def __init__(
        self,
        graphs: GraphSources = DEFAULT_GRAPHS,
        *,
        strict: bool = False,
        max_edges: int | None = None,
        **arguments: Any,
    ) -> None:
        """Loads the graphs; see the class for the arguments, others are those of `FusionPlacementEnv`.

        Raises:
            ConfigError: an argument has no usable value, or no graph is small enough.
            WorkloadError: a program cannot be found or built.
        """
        self._max_edges = max_edges
        super().__init__(graphs, strict=strict, **arguments)

    def _make_spaces(self) -> None:
        self.links = self._max_edges or max(edge_count(item.graph) for item in self.items)
        rows, links = self.rows, self.links
        self.action_space = spaces.MultiDiscrete(np.tile(np.asarray(self.sizes, np.int64), rows))
        self.observation_space = spaces.Dict(
            {
                "nodes": spaces.Box(0.0, 1.0, (rows, len(self.node_features)), np.float32),
                "node_mask": spaces.Box(0, 1, (rows,), np.int8),
                "edges": spaces.Box(0.0, 1.0, (links, len(EDGE_FEATURES)), np.float32),
                "edge_links": spaces.Box(0, rows - 1, (links, 2), np.int32),
                "edge_mask": spaces.Box(0, 1, (links,), np.int8),
                "action_mask": spaces.Box(0, 1, (rows * sum(self.sizes),), np.int8),
            }
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [M * S]; legal values of the graph at hand, True = allowed; a fresh array."""
        return self.codec.flat_mask(self.rows)

    def _observe(self, outcome: Outcome | None) -> dict[str, NDArray[Any]]:
        features = self.features
        nodes = self._nodes(outcome)
        return {
            "nodes": _padded(nodes, self.rows),
            "node_mask": _padded(np.ones(len(nodes), np.int8), self.rows),
            "edges": _padded(features.edges, self.links),
            "edge_links": _padded(features.links, self.links),
            "edge_mask": _padded(np.ones(len(features.links), np.int8), self.links),
            "action_mask": self.action_masks().astype(np.int8),
        }


def _padded(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """A fresh array with zeros behind."""
    out = np.zeros((rows, *values.shape[1:]), values.dtype)
    out[: len(values)] = values
    return out
