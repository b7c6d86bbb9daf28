"""Products of a matrix and a few vectors, and what is computed of them, with the vectors as rows."""
