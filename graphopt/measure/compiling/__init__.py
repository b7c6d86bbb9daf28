"""Compiling functions and bare modules with a rewrite of our choice."""
