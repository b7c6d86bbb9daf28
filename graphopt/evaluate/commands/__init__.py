"""One module per command that runs programs."""
