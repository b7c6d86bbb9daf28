"""A machine of no known kind is measured once, at the first tuning there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from graphopt.errors import GraphOptError
from graphopt.machine import own_kind
from graphopt.machine.cost_rows import here_is_known
from graphopt.measure.calibrating.calibrate import Tell, calibrate
from graphopt.measure.calibrating.result import Calibration
from graphopt.store import Store
from graphopt.store.machine_costs import get_costs, put_costs, use_stored_costs

SWITCH: Final = "GRAPHOPT_CALIBRATE"
"""Environment variable; 0 turns off measuring without having been asked."""


def calibrate_once(
    store: Store, tell: Tell, measure: Callable[[Tell], Calibration] = calibrate
) -> None:
    """Measures this machine where neither the table nor the store knows its kind, and uses the result.

    A measurement that finds nothing is stored too, and not made again. Nothing is raised: whatever goes
    wrong, decisions rest on the table's default. An interrupt ends the measurement and nothing else.

    Args:
        store: what was measured before.
        tell: told what is done, in one line, and how it went.
        measure: makes the measurement.
    """
    if here_is_known():
        return
    try:
        if os.environ.get(SWITCH, "") != "0" and get_costs(store, own_kind()) is None:
            tell("measuring this machine, once: some 5 s (Ctrl-C leaves it out)")
            found = measure(lambda _: None)
            put_costs(store, found.kind, found.facts, len(found.measured))
            tell(
                f"measured {len(found.measured)} facts; {len(found.facts)} differ from the defaults"
            )
        use_stored_costs(store)
    except KeyboardInterrupt:
        tell("not measured: interrupted; the defaults are used")
    except (GraphOptError, OSError) as error:
        what = error.what if isinstance(error, GraphOptError) else error
        tell(f"not measured: {what}; the defaults are used")
