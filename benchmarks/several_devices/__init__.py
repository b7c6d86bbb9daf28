"""Programs over several CPU devices, with and without graphopt: ``python -m benchmarks.several_devices``."""
