"""What everything in the lazy runtime rests on: nodes, dtypes, shapes, source lines, counters."""
