"""Interleaved timing, and whether two results agree."""
