"""The graph of a module: built from bytes, read by everything, with XLA's own decisions."""
