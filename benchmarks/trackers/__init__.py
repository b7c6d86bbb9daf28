"""Programs after reports of slow CPU code in issue trackers and forums, in plain JAX."""
