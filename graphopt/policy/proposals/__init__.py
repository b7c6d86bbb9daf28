"""Decision vectors worth a look: whole ones, single changes, starting points of searches."""
