"""HLO modules as graphs."""
