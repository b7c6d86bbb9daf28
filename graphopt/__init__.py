"""graphopt: a learned fusion-and-placement pass for XLA."""
