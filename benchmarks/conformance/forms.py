"""jax's own primitive harnesses in every form of operations, compared with XLA's default.

    python -m benchmarks.conformance.forms [--only conv] [--every 4] [--kinds alone gradient]

Each form is taken wherever nothing forbids it, whatever it gains: harnesses have small shapes, with all
types, paddings, dilations and axes. A harness counts for a form if the form took part in its program. Results
are compared as everywhere in graphopt; those that differ by more are printed, and make the exit status 1.
Sorts that are not stable are left out: they may put equal keys in any order.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.conformance.harnesses import HARNESSES, program
from benchmarks.progress import counted, ended
from graphopt import forms
from graphopt.forms.table import BY_PRIMITIVE
from graphopt.measure import compare_outputs


def names(only: str, every: int) -> list[str]:
    """Names of harnesses."""
    decided = (name for name in HARNESSES if "isstable_False" not in name)
    return [name for name in decided if name.startswith(only)][::every]


def lowered(fn: Any, args: Any) -> Any:
    """A function as jax lowers it in this moment."""
    return jax.jit(lambda *a: fn(*a)).lower(*args)


def trials(name: str, kind: str) -> Iterator[tuple[str, str]]:
    """(form, "" or what is wrong) for every form that takes part in a harness."""
    try:
        fn, args = program(name, kind).build()
        with forms.enabled(always=True) as choices:
            lowered(fn, args)
    except Exception:  # jax or the harness has no such program
        return
    used = {choice.form.name for choice in choices if choice.form is not None}
    if not used:
        return
    primitives = {p for f in forms.FORMS if f.name in used for p in f.primitives}
    candidates = {f.name for p in primitives for f in BY_PRIMITIVE[p]}
    with forms.disabled():
        expected = jax.device_get(lowered(fn, args).compile()(*args))
    for form in sorted(candidates):
        with forms.enabled((form,), always=True) as choices:
            text = lowered(fn, args)
        if choices:
            yield form, _difference(expected, text.compile()(*args))


def _difference(expected: Any, found: Any) -> str:
    difference = compare_outputs(expected, jax.device_get(found))
    return "" if difference.equal else f"differs by {difference.relative:.3g} {difference.leaf}"


def main() -> int:
    """Tries all; prints what differs and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="beginning of names")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=["alone"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    equal: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    with counted(names(options.only, options.every), "programs tried") as rest:
        for name in rest:
            for kind in options.kinds:
                for form, what in trials(name, kind):
                    (wrong if what else equal)[form] += 1
                    if what:
                        print(f"{form}: {name} {kind}: {what}", flush=True)
    print(f"jax {jax.__version__}\n| form | equal | different |\n|---|---|---|")
    for form in forms.FORMS:
        print(f"| {form.name} | {equal[form.name]} | {wrong[form.name]} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(ended(main))
