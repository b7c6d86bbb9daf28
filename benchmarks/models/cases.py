"""Which models are measured, on inputs of which size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import images, sequences
from benchmarks.models.backends import Jax, weights_of
from benchmarks.models.by_torch import Torch, turned


@dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
        build: (operations, input) -> result.
        dims: of the input of one element of the batch, channels last.
        words: the input is whole numbers below this; 0 for a normal distribution.
    """

    build: Callable[[Any, Any], Any]
    dims: tuple[int, ...]
    words: int = 0


MODELS: dict[str, Model] = {
    "mobilenet_v2": Model(images.mobilenet_v2, (96, 96, 3)),
    "efficientnet": Model(images.efficientnet, (96, 96, 3)),
    "convnext": Model(images.convnext, (96, 96, 3)),
    "resnet18": Model(images.resnet18, (96, 96, 3)),
    "regnet": Model(images.regnet, (96, 96, 3)),
    "unet": Model(images.unet, (64, 64, 3)),
    "wavenet": Model(sequences.wavenet, (1024, 1)),
    "wav2vec2": Model(sequences.wav2vec2, (8000, 1)),
    "bert": Model(sequences.bert, (64,), 8192),
    "gpt2": Model(sequences.gpt2, (64,), 4096),
    "vit": Model(sequences.vit, (128, 128, 3)),
}


@dataclass(frozen=True)
class Case:
    """A model, what is done with it, and how many inputs it takes.

    Attributes:
        model: name of it.
        training: one step of gradient descent; otherwise the result.
        batch: number of inputs.
        first: channels of images and sequences stand in front in jax, too.
    """

    model: str
    training: bool
    batch: int
    first: bool = False

    @property
    def name(self) -> str:
        """For tables."""
        kind = "step" if self.training else "forward"
        return f"{self.model}, {kind}, {self.batch}{', channels first' if self.first else ''}"

    def inputs(self) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
        """Weights and the input."""
        model, rng = MODELS[self.model], np.random.default_rng(1)
        shape = (self.batch, *model.dims)
        x = rng.integers(0, model.words, shape) if model.words else rng.normal(size=shape)
        x = x.astype(np.int32 if model.words else np.float32)
        return weights_of(model.build, x, self.training), x

    def by_jax(self, weights: list[Any], x: Any) -> Any:
        """The result, or the loss and the next weights."""
        build = MODELS[self.model].build

        def run(values: list[Any]) -> Any:
            return build(Jax(iter(values), self.training, self.first), x)

        if not self.training:
            return run(weights)
        loss, gradients = jax.value_and_grad(lambda v: jnp.mean(run(v) ** 2))(weights)
        return loss, [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)]

    def by_torch(self, torch: Any) -> Callable[[], Any]:
        """The same in PyTorch, eager."""
        build, (weights, x) = MODELS[self.model].build, self.inputs()
        values, tensor = turned(torch, weights), torch.from_numpy(x)

        def forward() -> Any:
            with torch.inference_mode():
                return build(Torch(torch, iter(values), False), tensor)

        def step() -> Any:
            leaves = [v.detach().requires_grad_() for v in values]
            loss = (build(Torch(torch, iter(leaves), True), tensor) ** 2).mean()
            found = torch.autograd.grad(loss, leaves, allow_unused=True)
            with torch.no_grad():
                pairs = zip(leaves, found, strict=True)
                return loss, [v if g is None else v - 0.01 * g for v, g in pairs]

        return step if self.training else forward


CASES: tuple[Case, ...] = (
    *(Case(name, False, 1) for name in MODELS),
    *(Case(name, False, 8) for name in MODELS),
    *(Case(name, True, 8) for name in MODELS),
    *(Case(name, False, 1, True) for name in ("mobilenet_v2", "resnet18", "regnet", "wavenet")),
)
