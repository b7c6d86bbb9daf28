"""From pending nodes to values: graphs, keys, compiles, tiers."""
