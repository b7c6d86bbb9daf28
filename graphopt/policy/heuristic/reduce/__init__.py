"""Steps about reductions: by the kernel library, by loop kernels, as trees, in slices."""
