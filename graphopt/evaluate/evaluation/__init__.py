"""``graphopt evaluate``: programs measured one by one, each in a process of its own."""
