"""Whole models in jax and PyTorch, from one definition and the same weights."""
