"""A PyTorch model under graphopt: torchax runs it by jax, graphopt optimizes what jax compiles.

Needs torch and torchax, which graphopt does not install: `pip install torch==2.11.0 torchax==0.0.13`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax

import graphopt


class Classifier(torch.nn.Module):
    def __init__(self, features=32, width=64, classes=10):
        super().__init__()
        self.embed = torch.nn.Linear(features, width)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.norm(self.embed(x)))
        return torch.log_softmax(self.head(hidden), dim=-1)


def infer(model, x):
    """The model's results by torchax and graphopt, as a NumPy array."""
    with torchax.default_env(), torch.no_grad():
        compiled = torchax.compile(model.to("jax"))
        return np.asarray(compiled(x.to("jax")).jax())


def train(model, x, labels, steps=20):
    """Losses of gradient descent on the model's weights, which become jax arrays."""
    weights, call = torchax.extract_jax(model)
    inputs, targets = jnp.asarray(x.numpy()), jnp.asarray(labels.numpy())

    def loss(weights):
        scores = call(weights, (inputs,))
        return -jnp.mean(jnp.take_along_axis(scores, targets[:, None], axis=1))

    @jax.jit
    def step(weights):
        value, gradient = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.5 * g, weights, gradient), value

    losses = []
    for _ in range(steps):
        weights, value = step(weights)
        losses.append(float(value))
    return losses


def main():
    """Runs and trains the model; returns the largest difference to PyTorch, and the losses."""
    graphopt.install()
    torch.manual_seed(0)
    model, x = Classifier(), torch.randn(128, 32)
    with torch.no_grad():
        expected = model(x).numpy()
    losses = train(model, x, torch.arange(128) % 10)
    difference = float(np.abs(infer(model, x) - expected).max())
    print(
        f"largest difference to PyTorch {difference:.1e}; loss {losses[0]:.3f} to {losses[-1]:.3f}"
    )
    print(graphopt.report())
    graphopt.uninstall()
    return difference, losses


if __name__ == "__main__":
    main()
