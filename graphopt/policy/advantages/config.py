"""Sizes of the network of advantages, and the names and shapes of its parameters, without any framework.

Both implementations read them: `graphopt.policy.advantages.flax_network` (flax and jraph, for training) and
`graphopt.policy.advantages.numpy_network` (numpy, for use inside XLA's compile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.errors import ConfigError
from graphopt.policy.advantages.alternative_columns import ALTERNATIVE_COLUMNS, KIND_NAMES
from graphopt.policy.advantages.node_columns import (
    DTYPE_NAMES,
    NODE_COLUMNS,
    OP_NAMES,
    PROGRAM_COLUMNS,
    STATE_COLUMNS,
)

OUTPUTS: Final = 2
"""Of the head: the mean of an alternative's log ratio, and the logarithm of its standard deviation."""

FIRST_DEVIATION: Final = -2.0
"""Logarithm of the standard deviation before training."""

RECEIVED: Final = 4
"""Messages that a node receives in a layer: from operands, from users, from its computation, from the
computations that it calls."""


@dataclass(frozen=True)
class AdvantageConfig:
    """Sizes of the network, and the parts that ablations switch off."""

    hidden: int = 48
    """Width of the states of nodes and alternatives."""
    layers: int = 3
    """Message passing layers."""
    heads: int = 4
    """Attention heads; must divide `hidden`."""
    kind_width: int = 12
    """Width of the embedding of an alternative's kind."""
    op_width: int = 12
    """Width of the operation embedding."""
    dtype_width: int = 4
    """Width of the element type embedding."""
    graph: bool = True
    """Messages between nodes; off: an alternative sees the columns of its own nodes only."""
    attention: bool = True
    """Attention across the alternatives of a state; off: each is judged by itself."""

    def __post_init__(self) -> None:
        """Checks the sizes.

        Raises:
            ConfigError: a size is not positive, or heads do not divide the width.
        """
        sizes = ("hidden", "layers", "heads", "kind_width", "op_width", "dtype_width")
        bad = [name for name in sizes if getattr(self, name) < 1]
        if not bad and self.hidden % self.heads:
            bad.append("heads")
        if bad:
            raise ConfigError(
                what=f"unusable network size {bad[0]}={getattr(self, bad[0])}",
                where="model configuration",
                fix="Sizes are positive, and heads divide hidden.",
            )

    @property
    def depth(self) -> int:
        """Message passing layers that there are."""
        return self.layers if self.graph else 0

    @property
    def node_inputs(self) -> int:
        """Columns of a node, embeddings included."""
        return len(NODE_COLUMNS) + len(STATE_COLUMNS) + self.op_width + self.dtype_width

    @property
    def alternative_inputs(self) -> int:
        """Columns of an alternative: its own, its kind's, the states of its site, its edits, the program."""
        return len(ALTERNATIVE_COLUMNS) + self.kind_width + 4 * self.hidden


Shapes = dict[str, tuple[int, ...]]


def _dense(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.kernel": (inputs, outputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.scale": (width,), f"{name}.bias": (width,)}


def parameter_shapes(config: AdvantageConfig) -> Shapes:
    """Name and shape of every parameter; all are float32."""
    h = config.hidden
    shapes: Shapes = {
        "op_embedding": (len(OP_NAMES), config.op_width),
        "dtype_embedding": (len(DTYPE_NAMES), config.dtype_width),
        "kind_embedding": (len(KIND_NAMES), config.kind_width),
        **_dense("embed", config.node_inputs, h),
        **_dense("summary", h + len(PROGRAM_COLUMNS), h),
        **_dense("alternative", config.alternative_inputs, 2 * h),
        **_dense("narrow", 2 * h, h),
        **_norm("head_norm", h),
        **_dense("head_hidden", h, h),
        **_dense("head", h, OUTPUTS),
    }
    for layer in range(config.depth):
        shapes |= _dense(f"messages.{layer}", h, 3 * h)
        shapes |= _dense(f"updates.{layer}", (1 + RECEIVED) * h, h)
        shapes |= _norm(f"message_norms.{layer}", h)
    if config.attention:
        shapes |= _norm("attend_norm", h) | _dense("qkv", h, 3 * h) | _dense("mix", h, h)
    return shapes
