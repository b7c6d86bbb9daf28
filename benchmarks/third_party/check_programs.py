"""Build, compile and run every third-party program once and report on each.

Usage: python benchmarks/third_party/check_programs.py [--only NAME]
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.progress import counted, ended
from benchmarks.third_party.common import Builder
from benchmarks.third_party.programs import WORKLOADS

HOST_CALLBACK = "_python_cpu_callback"


def require_arrays(what: str, tree: Any) -> None:
    """Raise unless every leaf of the tree is an array of numbers or booleans."""
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise TypeError(f"{what} contain a {type(leaf).__name__} instead of an array")
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise TypeError(f"{what} contain an array of extended dtype {leaf.dtype}")


def all_finite(tree: Any) -> bool:
    """Tell whether every inexact leaf of the tree is finite everywhere."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return all(np.isfinite(x).all() for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact))


def check(builder: Builder) -> tuple[int, bool]:
    """Run the built program; return its optimized instruction count and output finiteness."""
    fn, args = builder()
    require_arrays("arguments", args)
    compiled = jax.jit(fn).lower(*args).compile()
    text = compiled.as_text() or ""
    if HOST_CALLBACK in text:
        raise RuntimeError("the compiled program calls back into Python")
    outputs = jax.block_until_ready(compiled(*args))
    require_arrays("outputs", outputs)
    return text.count(" = "), all_finite(outputs)


def main() -> int:
    """Check the selected programs; return 1 if any fails or yields non-finite outputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="NAME", choices=sorted(WORKLOADS))
    only = parser.parse_args().only
    names = [only] if only else list(WORKLOADS)
    bad = []
    with counted(names, "programs checked") as rest:
        for name in rest:
            try:
                instructions, finite = check(WORKLOADS[name])
            except Exception:  # one broken program must not hide the others
                print(f"{name:36} FAILED\n{traceback.format_exc()}", flush=True)
                bad.append(name)
                continue
            print(
                f"{name:36} {instructions:7d}  {'finite' if finite else 'NOT FINITE'}", flush=True
            )
            if not finite:
                bad.append(name)
    print(f"{len(names) - len(bad)} of {len(names)} programs pass", flush=True)
    if bad:
        print("not passing: " + ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(ended(main))
