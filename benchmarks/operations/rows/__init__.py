"""The operations, one module per chapter."""
