"""Benchmark suites that are commands of their own."""
