"""One module per row of the table of restructures: when it is legal, and what it writes."""
