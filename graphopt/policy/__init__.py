"""Policies: functions from a graph to decisions."""

from graphopt.policy.registry import NamedPolicy, Policy, names, resolve

__all__ = ["NamedPolicy", "Policy", "names", "resolve"]
