"""Programs of many kinds as people write them, none of a library."""
