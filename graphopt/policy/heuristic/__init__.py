"""The hand-written heuristic: a table of steps, one module each."""
