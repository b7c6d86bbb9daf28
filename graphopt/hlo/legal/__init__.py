"""Which decisions are legal, as a table of rules with names."""
