"""Gradients and batching of recorded programs."""
