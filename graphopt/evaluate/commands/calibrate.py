"""``graphopt doctor --calibrate``: what things cost on this machine, as a table and as a row to paste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import count
from typing import Any, Final

from rich.console import Console

from graphopt.machine import CpuCosts, costs_for, probe
from graphopt.machine.cost_rows import here_is_known
from graphopt.machine.named_facts import FUNCTIONS, with_facts
from graphopt.measure.calibrating.calibrate import calibrate
from graphopt.measure.calibrating.probes import PROBES
from graphopt.measure.calibrating.result import Calibration
from graphopt.progress import steps
from graphopt.store import Store
from graphopt.store.machine_costs import put_costs

_COLUMNS: Final = "{:<38} {:<18} {:>9} {:>9} {:>6}  {}"


def run_calibration(store: Store | None = None) -> bool:
    """Measures this machine, prints and stores the result.

    Args:
        store: where it goes; the user's store by default.

    Returns:
        False if nothing could be measured; then nothing is stored.

    Raises:
        StoreError: the store cannot be written.
        KeyboardInterrupt: it was interrupted; nothing is stored.
    """
    store = store or Store()
    with steps(Console(stderr=True), len(PROBES), "facts measured, nothing stored") as show:
        begun = count()
        found = calibrate(lambda line: show(line, next(begun)))
    for line in (*_lines(found), *found.notes) if found.measured else found.notes:
        print(line)
    if not found.measured:
        return False
    put_costs(store, found.kind, found.facts, len(found.measured))
    last = f"{found.seconds:.1f} s, stored in {store.path}"
    if here_is_known():
        last += "; not used: this kind of machine has a row in the table"
    print(last)
    if found.facts:
        print(f"\nAs a row of CPU_COSTS in graphopt/machine/cost_rows.py:\n\n{row_text(found)}")
    return True


def _lines(found: Calibration) -> Iterator[str]:
    """The table, as text in columns."""
    yield str(found.kind)
    yield _COLUMNS.format("fact", "unit", "table", "measured", "ratio", "").rstrip()
    for fact in found.measured:
        ratio = f"{fact.ratio:.2f}"
        row = (fact.name, fact.unit, _number(fact.default), _number(fact.value), ratio, fact.note)
        yield _COLUMNS.format(*row).rstrip()


def _number(value: float) -> str:
    """Four digits, without an exponent."""
    return f"{float(f'{value:.4g}'):,.10g}"


def row_text(found: Calibration) -> str:
    """The measured facts as source text: a ``CostRow`` in the terms of `graphopt.machine.cost_rows`."""
    rounded = {name: float(f"{value:.3g}") for name, value in found.facts.items()}
    costs, default = with_facts(costs_for(probe(), found.kind.jaxlib), rounded), CpuCosts()
    names = [field.name for field in fields(CpuCosts)]
    changed = [name for name in names if getattr(costs, name) != getattr(default, name)]
    lines = [f"            {name}={_value_text(costs, name)}," for name in changed]
    release = ".".join(found.kind.jaxlib.split(".")[:2])
    head = f'    CostRow(\n        "{found.kind.name}", {found.kind.simd_bits}, "{release}",'
    return "\n".join([head, "        CpuCosts(", *lines, "        ),", "    ),"])


def _as_written(value: Any) -> Any:
    """A value whose ``repr`` is source text: a table of another type becomes a dict."""
    if isinstance(value, Mapping):
        return {key: _as_written(part) for key, part in value.items()}
    return value


def _value_text(costs: CpuCosts, name: str) -> str:
    if name != FUNCTIONS:
        return repr(_as_written(getattr(costs, name)))
    default = CpuCosts().function_ns
    changed = {key: pair for key, pair in costs.function_ns.items() if pair != default[key]}
    return f"{{**FUNCTIONS, **{changed!r}}}"
