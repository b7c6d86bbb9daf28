"""Training loops that donate their state, with and without graphopt."""
