"""What a jaxlib keeps of a rewritten module: known for some, tried once in a child process for others."""
