"""What every test needs before it imports jax."""

import os

# The tests are about the CPU backend, on whatever machine they run.
os.environ["JAX_PLATFORMS"] = "cpu"
