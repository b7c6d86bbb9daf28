"""The optimizer inside every `jax.jit` of this process, and its report."""

from graphopt.plugin.forms_in_use import add_forms
from graphopt.plugin.installing import (
    add_record,
    install,
    installed_policy,
    report,
    reset_report,
    uninstall,
)
from graphopt.plugin.modules import optimize_module

__all__ = [
    "add_forms",
    "add_record",
    "install",
    "installed_policy",
    "optimize_module",
    "report",
    "reset_report",
    "uninstall",
]
