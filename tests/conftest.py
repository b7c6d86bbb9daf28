"""What every test needs before it imports jax."""

import os
import signal

import pytest
from hypothesis import settings

# The tests are about the CPU backend, on whatever machine they run.
os.environ["JAX_PLATFORMS"] = "cpu"

# What one test decides must not answer for another; the tests of the memory turn it on.
os.environ["GRAPHOPT_REMEMBER"] = "0"

# Machines that the table of costs does not know are measured at their first tuning: not in every test.
os.environ["GRAPHOPT_CALIBRATE"] = "0"

# A job in the background of a shell ignores interrupts, and so would every process that it starts; tests
# that interrupt one need the usual handler.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a suite that guards each change must not fail by chance. New ones are
# looked for with HYPOTHESIS_PROFILE=explore.
settings.register_profile("suite", derandomize=True)
settings.register_profile("explore")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.fixture
def unknown_kind(monkeypatch):
    """A machine that the table of costs does not know, and of which nothing was measured."""
    from graphopt.machine import cost_rows

    monkeypatch.setattr(cost_rows, "CPU_COSTS", ())
    cost_rows.hand_over({})
    yield
    cost_rows.hand_over({})


@pytest.fixture
def clean_plugin():
    """Nothing installed and nothing reported, before and after."""
    import graphopt

    graphopt.uninstall()
    graphopt.reset_report()
    yield
    graphopt.uninstall()
    graphopt.reset_report()
