"""Policies: functions from a graph to decisions."""

from graphopt.policy.base import NamedPolicy, Policy, names, resolve

__all__ = ["NamedPolicy", "Policy", "names", "resolve"]
