"""What the steps of the heuristic share: what a step is, what it sees, native code, walls, concatenations."""
