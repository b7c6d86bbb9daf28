"""A learned placement policy: blocks of a graph to any number of devices."""

from graphopt.policy.placement.blocks import BlockGraph, block_graph
from graphopt.policy.placement.learned import PlacementPolicy, load_policy

__all__ = ["BlockGraph", "PlacementPolicy", "block_graph", "load_policy"]
