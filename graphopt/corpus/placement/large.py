"""Models of the placement literature at full size: traced from shapes, never run.

Layer counts and kinds follow the workloads of GO (arXiv 2010.12438): RNN language models, GNMT,
Transformer-XL, Inception-v3, an AmoebaNet-like cell network, WaveNet. Widths, batches and sequence
lengths are the usual ones of each model's own paper where GO does not say. Every model is its training
step: the gradient of a loss with respect to all parameters. Name scopes ``layer<k>`` mark what a person
would place together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax

from graphopt.corpus.placement import convolutional, recurrent, transformer


@dataclass(frozen=True)
class LargeModel:
    """A model to be traced.

    Attributes:
        name: lower-case words and numbers.
        devices: accelerators it is placed on in the literature.
        build: returns ``(loss, params, inputs)``; params and inputs are pytrees of shapes.
    """

    name: str
    devices: int
    build: Callable[[], tuple[Callable[..., Any], Any, Any]]

    def trace(self) -> tuple[Any, list[bool]]:
        """The training step as a closed jaxpr, and per flat argument whether it is a parameter."""
        loss, params, inputs = self.build()
        closed = jax.jit(jax.grad(loss)).trace(params, inputs).jaxpr
        flags = [True] * len(jax.tree.leaves(params)) + [False] * len(jax.tree.leaves(inputs))
        return closed, flags


LARGE: Final[tuple[LargeModel, ...]] = (
    *(LargeModel(f"rnnlm-{n}", n, recurrent.language_model(n)) for n in (2, 4, 8)),
    *(LargeModel(f"gnmt-{n}", n, recurrent.translation(n)) for n in (2, 4, 8)),
    *(LargeModel(f"transformer-xl-{n}", n, transformer.transformer_xl(n)) for n in (2, 4, 8)),
    LargeModel("inception-v3", 2, convolutional.inception()),
    LargeModel("amoebanet", 4, convolutional.amoebanet()),
    LargeModel("wavenet-2x18", 2, convolutional.wavenet(2, 18)),
    LargeModel("wavenet-4x36", 4, convolutional.wavenet(4, 36)),
)
"""Thirteen models, in the order of GO's tables."""
