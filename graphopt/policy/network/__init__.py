"""The learned policy: features, network in flax and in numpy, gate, checkpoints."""
