"""Public operations of jax at three sizes: XLA's default, graphopt, and PyTorch or NumPy, in turn."""
