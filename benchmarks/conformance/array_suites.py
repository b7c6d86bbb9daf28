"""Lazy tensors in the array API tests of SciPy and array-api-extra, in both tiers.

    python -m benchmarks.conformance.array_suites [--only array-api-extra special] [--limit-s 1200]
        [--tiers op-by-op]

Wants pytest-timeout, which graphopt's dev extra has. Both suites run over a list of array libraries that they
know; in a copy of SciPy as it is installed, and of array-api-extra's source distribution, `graphopt.lazy` is
added to that list. Nothing else is changed. What failed is written to ``FOLDER/SUITE-TIER.failed``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import scipy

from benchmarks.conformance.libraries import finish, source_of, start
from benchmarks.progress import counted, ended
from graphopt.lazy.core.dtypes import VARIABLE

EXTRA: Final = ("array-api-extra", "0.11.5")
SCIPY: Final = (
    "special", "cluster", "fft", "signal", "constants", "differentiate", "integrate", "interpolate", "linalg",
    "ndimage", "optimize", "spatial", "stats",
)  # fmt: skip
"""Parts of SciPy that take arrays of any library."""

TIERS: Final = ("compiled", "op-by-op")


@dataclass(frozen=True)
class Suite:
    """Tests of one library.

    Attributes:
        source: folder that pytest runs in; holds the library under its own name.
        tests: what pytest is told.
    """

    source: Path
    tests: tuple[str, ...]


def edited(path: Path, old: str, new: str) -> None:
    """Replaces a text of a file that must be there.

    Raises:
        ValueError: it is not.
    """
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{path} has no {old!r}: this version is not known")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def array_api_extra(folder: Path) -> Path:
    """Its source distribution, with lazy tensors among its libraries."""
    target = folder / "array_api_extra"
    if not target.exists():
        name, version = EXTRA
        source = source_of(name, folder, version)
        edited(
            source / "src/array_api_extra/_lib/_backends.py",
            '    JAX = "jax.numpy"\n',
            '    GRAPHOPT = "graphopt.lazy"\n    JAX = "jax.numpy"\n',
        )
        target.mkdir()
        shutil.copytree(source / "src/array_api_extra", target / "array_api_extra")
        shutil.copytree(source / "tests/main", target / "tests")
    return target


def scipy_copy(folder: Path) -> Path:
    """A copy of the installed SciPy, with lazy tensors among its libraries."""
    target = folder / "scipy"
    if not target.exists():
        installed = Path(scipy.__file__).parent
        shutil.copytree(installed, target / "scipy")
        libraries = installed.with_name("scipy.libs")
        if libraries.exists():
            (target / "scipy.libs").symlink_to(libraries)
        conftest = target / "scipy/conftest.py"
        edited(conftest, "'dask.array'}", "'dask.array', 'graphopt.lazy'}")
        edited(
            conftest,
            "    xp_available_backend_ids = {",
            "    import graphopt.lazy\n"
            "    xp_available_backends.append(pytest.param(graphopt.lazy, id='graphopt.lazy',\n"
            "        marks=pytest.mark.array_api_backends))\n"
            "    xp_available_backend_ids = {",
        )
    return target


def suites(folder: Path) -> dict[str, Suite]:
    """Name -> tests."""
    extra, copy = array_api_extra(folder), scipy_copy(folder)
    found = {"array-api-extra": Suite(extra, ("tests", "-k", "graphopt"))}
    for part in SCIPY:
        found[f"scipy.{part}"] = Suite(copy, (f"scipy/{part}", "-m", "array_api_backends"))
    return found


def run(name: str, suite: Suite, tier: str, folder: Path, limit_s: float) -> str:
    """One suite in one tier: a row of the table."""
    os.environ["GRAPHOPT_LAZY_TIER"] = tier
    log = folder / f"{name}-{tier}.jsonl"
    tests = ["-p", "lazy_tier", *suite.tests]
    done = finish(start(tests, suite.source, limit_s, log, {}), log)
    count = Counter(done.outcomes.values())
    failed = sorted(test for test, outcome in done.outcomes.items() if outcome == "failed")
    log.with_suffix(".failed").write_text("".join(f"{test}\n" for test in failed))
    stopped = "" if done.ended else " (stopped)"
    return (
        f"| {name}, {tier}{stopped} | {count['passed']} | {count['failed']} | {count['skipped']} |"
    )


def main() -> int:
    """Prints a line per suite and tier."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--tiers", nargs="*", default=TIERS, choices=TIERS)
    parser.add_argument("--limit-s", type=float, default=1800.0)
    parser.add_argument("--folder", type=Path, default=Path("report/array-suites"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["SCIPY_ARRAY_API"] = '["graphopt.lazy"]'
    os.environ[VARIABLE] = "float64"  # as most of these tests expect
    found = suites(folder)
    chosen = [n for n in found if not options.only or n.removeprefix("scipy.") in options.only]
    print("| suite, tier | passed | failed | skipped |\n| --- | --- | --- | --- |", flush=True)
    with counted([(name, tier) for name in chosen for tier in options.tiers], "suites run") as rest:
        for name, tier in rest:
            print(run(name, found[name], tier, folder, options.limit_s), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
