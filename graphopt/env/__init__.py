"""Gymnasium environments over graphs, decisions and measured rewards.

Importing this package registers ``graphopt/FusionPlacement-v0``, ``graphopt/FusionPlacementPadded-v0``
and ``graphopt/FusionPlacement-v1``:

>>> import gymnasium, graphopt.env
>>> env = gymnasium.make("graphopt/FusionPlacement-v0", graphs="demo")

or in one line, ``gymnasium.make("graphopt.env:graphopt/FusionPlacement-v0")``.
"""

from graphopt.extras import require

require("an environment", "env")  # first: the modules below import gymnasium

from graphopt.env.actions import ActionCodec, DecisionSpace, encode
from graphopt.env.alternatives_env import AlternativesEnv
from graphopt.env.episode import EnvState
from graphopt.env.fusion_placement import FusionPlacementEnv
from graphopt.env.padded import FusionPlacementPaddedEnv
from graphopt.env.registration import ALTERNATIVES_ID, IDS, register
from graphopt.env.rewards import RewardSource, register_source
from graphopt.env.sources import GraphItem, load_graphs
from graphopt.env.validation import Validation

register()

__all__ = [
    "ALTERNATIVES_ID",
    "IDS",
    "ActionCodec",
    "AlternativesEnv",
    "DecisionSpace",
    "EnvState",
    "FusionPlacementEnv",
    "FusionPlacementPaddedEnv",
    "GraphItem",
    "RewardSource",
    "Validation",
    "encode",
    "load_graphs",
    "register",
    "register_source",
]
