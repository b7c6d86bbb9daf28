"""Loops over arrays, in what each iteration needs of the one before and what all of them compute together."""
