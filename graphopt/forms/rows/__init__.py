"""One module per form: when it may compute an operation, what it takes, and how it does it."""
