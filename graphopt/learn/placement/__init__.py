"""Training of the device placement policy, and its search."""
