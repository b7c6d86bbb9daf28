"""The programs of the corpus, one module per group of families; see `graphopt.corpus.registry`."""
