"""Rows that write a loop, or what it carries, in another way."""
