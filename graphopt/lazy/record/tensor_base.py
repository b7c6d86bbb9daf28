"""What recording needs to know of tensors: that they hold a node and can be referred to weakly."""

from __future__ import annotations

from graphopt.lazy.core.node import Node


class TensorBase:
    """A handle on a node; `Tensor` adds everything else."""

    __slots__ = ("__weakref__", "_node")

    _node: Node
