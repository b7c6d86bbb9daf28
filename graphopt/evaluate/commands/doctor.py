"""``graphopt doctor``: does it work on this machine, and what would it leave alone?"""

from __future__ import annotations

import os
import platform

import graphopt.version
from graphopt import jax_private, xla_hook
from graphopt.errors import GraphOptError
from graphopt.extras import EXTRAS, available
from graphopt.machine import own_kind, probe
from graphopt.machine.cost_rows import known_row
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.capabilities.table import TABLE, Capabilities
from graphopt.store import Store
from graphopt.store.machine_costs import get_costs


def diagnose() -> tuple[str, bool]:
    """The doctor's report, and whether everything needed works."""
    lines = [f"graphopt {graphopt.version.VERSION}, Python {platform.python_version()}"]
    healthy = True
    try:
        import jax
        import jaxlib.version

        lines.append(f"jax {jax.__version__}, jaxlib {jaxlib.version.__version__}")
        xla_hook.check_jax()
        lines.append(f"backend {jax.default_backend()}, devices {len(jax.devices())}")
        fired = _hook_fires()
        lines.append("hook: " + ("fires" if fired else "DOES NOT FIRE: nothing can be optimized"))
        healthy &= fired
        capabilities = own_capabilities(Store())
        lines += _capability_lines(capabilities)
        healthy &= capabilities.sound
    except (ImportError, RuntimeError, GraphOptError) as error:
        return "\n".join([*lines, f"PROBLEM: {error}"]), False
    machine = probe()
    lines.append(f"machine: {machine}")
    lines += [f"  unit {unit.name}: {unit.description}" for unit in machine.units]
    lines.append(f"costs: {_costs_note()}")
    lines.append(f"store: {_store_note()}")
    lines.append(f"extras: {_extras_note()}")
    lines += [f"left alone: {text}" for text in _left_alone(capabilities.donation)]
    return "\n".join(lines), healthy


def _hook_fires() -> bool:
    """Compiles a small program and looks whether XLA called back."""
    import jax.numpy as jnp

    from graphopt.measure import compile_with

    return bool(compile_with(lambda x: jnp.tanh(x) * 2.0, (jnp.ones(8),)).modules)


def _costs_note() -> str:
    """Which row of machine facts decisions rest on."""
    row = known_row(probe(), own_kind().jaxlib)
    if row is not None:
        return f"of a known kind: {row.processor}, {row.simd_bits}-bit vectors, jaxlib {row.jaxlib}"
    hint = "graphopt doctor --calibrate measures this machine"
    try:
        found = get_costs(Store(), own_kind())
    except GraphOptError as error:
        return f"default, since {error.what}; {hint}"
    if found is None:
        return f"default; {hint}"
    if not found.measured:
        return f"default: the calibration of {found.date} failed; {hint} again"
    return f"calibrated on {found.date}, {len(found.facts)} facts differ from the default"


def _capability_lines(capabilities: Capabilities) -> list[str]:
    """One line per row of the table of capabilities."""
    how = "known" if capabilities.known else "tried in a child process"
    lines = [f"capabilities of jaxlib {capabilities.jaxlib} ({how}):"]
    for row in TABLE:
        there = row.name in capabilities.holding
        state = "yes" if there else ("NO: XLA's default stands" if row.needed else "no")
        lines.append(f"  {row.name}: {state} ({row.meaning})")
    return lines


def _store_note() -> str:
    named = os.environ.get("GRAPHOPT_STORE", "")
    return Store(named).shown if named else "not used: nothing has been tuned on this machine"


def _extras_note() -> str:
    """Which optional dependencies are there: ``tune, plots; not train (flax, optax)``."""
    missing = {
        extra: [module for module in modules if not available(module)]
        for extra, modules in EXTRAS.items()
    }
    there = ", ".join(extra for extra, modules in missing.items() if not modules) or "none"
    absent = [f"{extra} ({', '.join(modules)})" for extra, modules in missing.items() if modules]
    return there + (f"; not installed: {'; '.join(absent)}" if absent else "")


def _left_alone(donation: bool) -> list[str]:
    import jax

    notes = ["modules with several devices or dynamic shapes"]
    if not donation:
        notes.append("modules with donated arguments, unless the gain outweighs the lost donation")
    if jax.default_backend() != "cpu":
        notes.append(f"modules for {jax.default_backend()}: the hook comes before fusion there")
    if os.environ.get("GRAPHOPT_DISABLE", "") not in ("", "0"):
        notes.append("everything: GRAPHOPT_DISABLE is set")
    if jax_private.persistent_cache_enabled():
        notes.append("programs found in the persistent compilation cache are not compiled again")
    return notes
