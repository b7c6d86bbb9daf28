"""Steps about loops: written out as one kernel, native, or with work computed ahead of them."""
