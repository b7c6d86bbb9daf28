"""Programs over libraries that no other benchmark uses, and whole trainings in one file, as they came.

Users write such trainings as one function; so they stand here, however long.
"""
