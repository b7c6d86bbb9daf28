"""The policy over alternatives of hot sites: columns, network in flax and in numpy, checkpoints, its rule."""
