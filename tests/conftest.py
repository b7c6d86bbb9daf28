"""What every test needs before it imports jax."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import PurePath

import pytest
from hypothesis import settings
from support.shared import VARIABLE

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


@pytest.fixture(scope="module", autouse=True)
def _old_objects_are_not_looked_at_again():
    """What earlier modules left alive, captured programs among it, would be traversed by every collection."""
    gc.freeze()


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


def pytest_configure(config):
    """Makes the folder that the workers share, by its name. The user's own store stays out of it."""
    if not hasattr(config, "workerinput"):
        folder = os.environ[VARIABLE] = tempfile.mkdtemp(prefix="graphopt-tests-")
        os.environ["GRAPHOPT_STORE"] = os.path.join(folder, "store.sqlite")
        os.environ["GRAPHOPT_STORE_COPY"] = os.path.join(folder, "copies")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(VARIABLE), ignore_errors=True)


def pytest_addoption(parser):
    parser.addoption("--cpu", action="store_true", help="print CPU seconds of the tests by folder")


_spent_s = 0.0


def _cpu_s():
    """CPU seconds of this process, of its children that have ended, and of forks."""
    forks = sys.modules.get("support.forks")
    return sum(os.times()[:4]) + (forks.spent_s if forks else 0.0)


def pytest_collection_finish():
    """What importing and collecting took is no test's."""
    global _spent_s
    _spent_s = _cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Notes CPU seconds since the last report, those of children that have ended among them."""
    global _spent_s
    report = yield
    now = _cpu_s()
    report.user_properties.append(("cpu_s", now - _spent_s))
    _spent_s = now
    return report


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--cpu"):
        return
    tests, seconds = defaultdict(set), defaultdict(float)
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        for name, value in getattr(report, "user_properties", ()):
            if name == "cpu_s":
                folder = str(PurePath(*PurePath(report.nodeid.partition("::")[0]).parts[:2]))
                tests[folder].add(report.nodeid)
                seconds[folder] += value
    terminalreporter.section("CPU seconds")
    for folder in sorted(seconds, key=seconds.__getitem__, reverse=True):
        count = len(tests[folder])
        terminalreporter.write_line(f"{seconds[folder]:8.1f} s {count:5} tests  {folder}")
    total = sum(seconds.values())
    terminalreporter.write_line(f"{total:8.1f} s {sum(map(len, tests.values())):5} tests")


@pytest.fixture(scope="module")
def plain_code():
    """Code that LLVM hardly optimises, which takes a third less to compile.

    For tests of what training and networks compute, to a tolerance; not for those of rewrites, whose
    promise is about the code that users get.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
