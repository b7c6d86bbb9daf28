"""One module per version of the store: what leads from the one before to it."""
