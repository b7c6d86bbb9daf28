"""Programs of the kinds that users report as slow on CPU, written without looking at graphopt."""
