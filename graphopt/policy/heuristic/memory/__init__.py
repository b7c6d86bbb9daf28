"""Steps about values that are written to memory, where XLA computes them inside of what reads them."""
