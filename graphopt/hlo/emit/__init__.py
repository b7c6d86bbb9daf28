"""Writing a planned module as bytes, and verifying it before XLA sees it."""
