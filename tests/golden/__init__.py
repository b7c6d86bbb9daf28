"""Decisions that must not change by accident: captured modules, machine descriptions, digests."""
