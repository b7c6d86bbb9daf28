"""The network's sizes and the names and shapes of its parameters, without any framework.

Both implementations read them: `graphopt.policy.network.flax_network` (flax, for training) and
`graphopt.policy.network.numpy_network` (numpy, for use inside XLA's compile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.errors import ConfigError
from graphopt.policy.network.decision_space import DECODED, VALUE_FEATURES
from graphopt.policy.network.features import DTYPE_NAMES, OP_NAMES, numeric_names

GAINS: Final = 2
"""Outputs of the gain head: the expected log speed-up, and a low quantile of it."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the policy network, and the parts that ablations switch off."""

    hidden: int = 64
    """Width of node states."""
    layers: int = 3
    """Message passing layers."""
    heads: int = 2
    """Attention heads; must divide `hidden`."""
    segment: int = 64
    """Nodes per attention segment; a node attends to its own segment and the one before."""
    depth: int = 1
    """Attention layers in the stack that every decision field runs through."""
    key: int = 16
    """Width in which node states and decision values are compared."""
    decision: int = 16
    """Width of an encoded decision."""
    op_width: int = 16
    """Width of the operation embedding."""
    dtype_width: int = 4
    """Width of the element type embedding."""
    start_logit: float = 3.0
    """Initial logit of the value that the policy starts from against all others together."""
    attention: bool = True
    """Segment-recurrent attention; off: only the dense layers of the stack."""
    superposition: bool = True
    """Graph-conditioned modulation of features."""
    joint: bool = True
    """Later fields see earlier decisions, fusion sees a draft of placement; off: independent heads."""

    def __post_init__(self) -> None:
        """Checks the sizes.

        Raises:
            ConfigError: a size is not positive, or heads do not divide the width.
        """
        sizes = ("hidden", "heads", "segment", "key", "decision", "op_width", "dtype_width")
        bad = [name for name in sizes if getattr(self, name) < 1]
        bad += [name for name in ("layers", "depth") if getattr(self, name) < 0]
        if self.heads > 0 and self.hidden % self.heads:
            bad.append("heads")
        if bad:
            raise ConfigError(
                what=f"unusable network size {bad[0]}={getattr(self, bad[0])}",
                where="model configuration",
                fix="sizes are positive, and heads divide hidden",
            )


Shapes = dict[str, tuple[int, ...]]


def _dense(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    shapes: Shapes = {f"{name}.kernel": (inputs, outputs)}
    if bias:
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.scale": (width,), f"{name}.bias": (width,)}


def parameter_shapes(config: ModelConfig) -> Shapes:
    """Name and shape of every parameter; all are float32."""
    h, values = config.hidden, len(VALUE_FEATURES)
    inputs = len(numeric_names()) + config.op_width + config.dtype_width
    shapes: Shapes = {
        "op_embedding": (len(OP_NAMES), config.op_width),
        "dtype_embedding": (len(DTYPE_NAMES), config.dtype_width),
        "stage_embedding": (len(DECODED), h),
        "start_logit": (len(DECODED),),
        **_dense("embed", inputs, h),
        **_dense("summary", 3 * h, h),
        **_dense("value_hidden", h, h),
        **_dense("value_out", h, 1),
        **_dense("draft", values, h),
        **_dense("decision_in", values + 1, config.decision),
        **_dense("decision_out", 3 * config.decision, h),
        **_dense("gain_in", 3 * h, h),
        **_dense("gain_hidden", 2 * h, h, bias=False),
        **_dense("gain_out", h, GAINS, bias=False),
        **_norm("head_norm", h),
    }
    for layer in range(config.layers):
        shapes |= _dense(f"messages.{layer}", h, 3 * h) | _dense(f"updates.{layer}", 6 * h, h)
        shapes |= _norm(f"message_norms.{layer}", h)
    for layer in range(config.depth):
        shapes |= _norm(f"blocks.{layer}.attend_norm", h) | _norm(f"blocks.{layer}.dense_norm", h)
        shapes |= _dense(f"blocks.{layer}.modulation", h, h)
        shapes |= _dense(f"blocks.{layer}.qkv", h, 3 * h) | _dense(f"blocks.{layer}.mix", h, h)
        shapes |= _dense(f"blocks.{layer}.dense_in", h, 2 * h)
        shapes |= _dense(f"blocks.{layer}.dense_out", 2 * h, h)
    for index in range(len(DECODED)):
        shapes |= _dense(f"heads.{index}.query", h, config.key)
        shapes |= _dense(f"heads.{index}.keys", values, config.key)
        shapes |= _dense(f"heads.{index}.bias", values, 1, bias=False)
    return shapes
