"""What the steps of the heuristic share: what a step is, what it sees, and what several of them ask."""
