"""The placement policy as an object: load, save, propose."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from graphopt.errors import PolicyError
from graphopt.placement.baselines import Placement, Problem
from graphopt.policy.placement import network
from graphopt.policy.placement.blocks import BlockGraph, block_graph

SHIPPED: Final = "placement_policy.npz"
BLOCKS: Final = 96

_GREEDY: Final = 0.05
"""Temperature of the first proposal."""

SCORED_TASKS: Final = 1_000_000
"""Tasks of all proposals that one call scores: large graphs get fewer proposals, within `SAMPLES`."""

SAMPLES: Final = (8, 64)
"""Fewest and most proposals per call."""


@dataclass(frozen=True, eq=False)
class PlacementPolicy:
    """Proposes placements; as a callable it returns the best of some proposals.

    Attributes:
        params: weights, see `network.init`.
        samples: proposals scored per call; None: by the size of the graph, see `SCORED_TASKS`.
    """

    params: network.Params
    samples: int | None = None

    def propose(
        self, graph: BlockGraph, count: int, *, seed: int = 0, temperature: float = 1.0
    ) -> NDArray[np.int32]:
        """int32 [count, K]: sampled devices per block; the first is nearly greedy."""
        shape = (count, *graph.share.shape)
        noise = np.random.default_rng(seed).gumbel(size=shape).astype(np.float32)
        heat = np.full(count, temperature, np.float32)
        heat[0] = _GREEDY
        return np.asarray(network.sample(self.params, network.arrays(graph), noise, heat), np.int32)

    def __call__(self, problem: Problem) -> Placement | None:
        """int16 [G]: the best proposal by the simulator."""
        graph = block_graph(problem, BLOCKS)
        count = self.samples or _samples(len(problem.simulator.tasks))
        placements = graph.placement(problem, self.propose(graph, count))
        seconds = problem.simulator.score(placements).seconds
        if np.isnan(seconds).all():
            return None
        best: Placement = placements[int(np.nanargmin(seconds))]
        return best

    def save(self, path: Path) -> None:
        """Writes the weights as an npz file."""
        leaves = jax.tree_util.tree_flatten_with_path(self.params)[0]
        rows: dict[str, Any] = {jax.tree_util.keystr(k): np.asarray(v) for k, v in leaves}
        np.savez_compressed(path, **rows)


def _samples(tasks: int) -> int:
    """A power of two, to compile seldom."""
    fewest, most = SAMPLES
    fitting = 1 << max(0, (SCORED_TASKS // max(1, tasks)).bit_length() - 1)
    return min(max(fitting, fewest), most)


def load_policy(path: Path | None = None) -> PlacementPolicy:
    """Reads a policy; without a path the one that is shipped.

    Raises:
        PolicyError: there is no such file, or it holds other weights than this version's network.
    """
    source = resources.files("graphopt.placement") / "data" / SHIPPED if path is None else path
    try:
        with source.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            rows = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise _unusable(str(source), f"cannot be read: {error}") from error
    template = network.init()
    leaves, tree = jax.tree_util.tree_flatten_with_path(template)
    values = []
    for key, leaf in leaves:
        name = jax.tree_util.keystr(key)
        if name not in rows or rows[name].shape != leaf.shape:
            raise _unusable(str(source), f"weights {name} are missing or of another shape")
        values.append(jnp.asarray(rows[name], jnp.float32))
    return PlacementPolicy(jax.tree_util.tree_unflatten(tree, values))


def _unusable(where: str, what: str) -> PolicyError:
    return PolicyError(what=what, where=where, fix="Train one with graphopt.learn.placement.train.")
