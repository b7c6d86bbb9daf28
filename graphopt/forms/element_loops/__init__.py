"""Loops over arrays whose elements end at different times, computed block by block."""
