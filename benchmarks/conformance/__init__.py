"""Suites that others wrote, run through the rewriting: jax's own harnesses of its primitives."""
