"""An analytic time model of XLA:CPU: of operations, kernels, loops and whole programs."""
