"""What recording needs to know of tensors: that they hold a node."""

from __future__ import annotations

from graphopt.lazy.core.node import Node


class TensorBase:
    """A handle on a node; `Tensor` adds everything else."""

    __slots__ = ("_node",)

    _node: Node
