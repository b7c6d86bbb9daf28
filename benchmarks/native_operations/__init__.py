"""Single operations inside loops: by XLA's default, as native code, and as the heuristic decides."""
