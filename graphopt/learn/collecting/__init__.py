"""Measured decisions: who scores them, of which graphs, and how the store is filled."""
