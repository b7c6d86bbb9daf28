"""Tests of graphopt.hlo."""
