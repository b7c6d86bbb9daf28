"""The tests of third-party libraries, with graphopt installed and without, side by side.

    python -m benchmarks.conformance.libraries [--only optax distrax] [--limit-s 3600] [--folder FOLDER]
    python -m benchmarks.conformance.libraries --only jax --source CHECKOUT

Wants the environment of ``benchmarks/third_party/requirements.txt`` or that of
``benchmarks/conformance/requirements.txt``, and pytest with pytest-timeout; takes libraries that are there.
Fetches the source distribution of the version that is installed and runs its tests twice at the same time,
one process with graphopt and one with ``GRAPHOPT_DISABLE=1``, to their end or for at most so long each.
Compared are the tests that ended in both: their outcomes, and the processor time of each. Tests that fail, or
are missing, with graphopt alone are run again, by themselves, both ways. What a library gave is kept in
``FOLDER/NAME.json``. A library whose tests came to their end is not run again; one that was stopped goes on
with the tests that have not ended yet.

The tests of jax itself are in none of its distributions. ``--source`` takes them from a folder that holds its
``tests``, best of the version that is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import jax
import pytest

from benchmarks.progress import counted, ended

ROOT = Path(__file__).resolve().parents[2]

LIBRARIES: Final = {
    "distrax": "distrax", "rlax": "rlax", "dynamax": "dynamax", "optax": "optax", "dm-haiku": "haiku",
    "tinygp": "tests", "e3nn-jax": "e3nn_jax tests", "jax-cfd": "jax_cfd", "mctx": "mctx", "brax": "brax",
    "flax": "tests/linen tests/nnx", "blackjax": "tests", "numpyro": "test", "gymnax": "tests",
    "dm_pix": "dm_pix", "flashbax": "flashbax", "jraph": "jraph", "quax": "tests", "mujoco-mjx": "mujoco",
    "chex": "chex", "cola-ml": "tests", "exponax": "tests", "flowjax": "tests", "gpjax": "tests",
    "interpax": "tests", "jax-md": "tests",
    "keras": "keras/src/ops keras/src/random keras/src/layers keras/src/optimizers keras/src/losses",
    "penzai": "tests", "pgx": "tests", "quadax": "tests", "s2fft": "tests",
}  # fmt: skip
"""Distribution -> where in its source distribution the tests are."""

CHECKED_OUT: Final = {"jax": "tests"}
"""The same for those whose source distribution has none."""

ENVIRONMENT: Final = {"KERAS_BACKEND": "jax"}
"""What libraries want to be told."""

TEST_LIMIT_S: Final = 900.0
"""A single test that takes longer counts as failed, on either side."""

ENDED: Final = frozenset(pytest.ExitCode) - {pytest.ExitCode.INTERRUPTED}
"""How pytest says that it came to its end, if only because it cannot begin."""


@dataclass(frozen=True)
class Suite:
    """One run of a library's tests.

    Attributes:
        outcomes: test -> passed, failed or skipped.
        cpu_s: test -> its processor time, seconds.
        ended: whether pytest came to its end, if only to say that it cannot begin; else it was stopped by the
            limit, or killed.
        killed: the process died of a signal other than the limit's.
        seen: graphopt's own count: modules seen, rewritten.
    """

    outcomes: dict[str, str]
    cpu_s: dict[str, float]
    ended: bool
    killed: bool
    seen: str

    def __post_init__(self) -> None:
        if self.outcomes.keys() != self.cpu_s.keys():
            raise ValueError("Suite: every test needs both an outcome and a time")


@dataclass(frozen=True)
class Comparison:
    """What one library's tests gave with graphopt and without.

    Attributes:
        library: distribution.
        version: of the distribution.
        jax: version of jax.
        tests: how many ended in both runs.
        passed: of those, passed in both.
        failed_with: failed with graphopt.
        failed_without: failed without.
        ours: failed or missing with graphopt, by themselves too, and not without.
        cpu_with_s: processor seconds of those tests with graphopt.
        cpu_without_s: the same without.
        whole: both runs came to their end.
        killed: the run with graphopt died of a signal.
        seen: graphopt's own count.
    """

    library: str
    version: str
    jax: str
    tests: int
    passed: int
    failed_with: int
    failed_without: int
    ours: tuple[str, ...]
    cpu_with_s: float
    cpu_without_s: float
    whole: bool
    killed: bool
    seen: str

    def line(self) -> str:
        """A row of the table of the documents."""
        ratio = self.cpu_with_s / self.cpu_without_s if self.cpu_without_s else 1.0
        return (
            f"| {self.library} {self.version} | {self.tests}{'' if self.whole else ' (stopped)'}"
            f" | {self.passed} | {self.failed_with} | {self.failed_without} | {len(self.ours)}"
            f" | {self.cpu_without_s:.0f} | {self.cpu_with_s:.0f} | {ratio:.2f} | {self.seen} |"
        )


HEAD: Final = (
    "| library | tests ended in both | passed in both | failed with | failed without | only with graphopt"
    " | CPU s without | CPU s with | ratio | modules |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def is_installed(name: str) -> bool:
    """Whether a distribution is there."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def source_of(name: str, folder: Path, version: str | None = None) -> Path:
    """The unpacked source distribution of a version; of the one that is installed if it is None."""
    version = version or importlib.metadata.version(name)
    about = f"https://pypi.org/pypi/{name}/json"
    with urllib.request.urlopen(about, timeout=60) as answer:
        files = json.load(answer)["releases"][version]
    (source,) = (file for file in files if file["packagetype"] == "sdist")
    target = folder / str(source["filename"]).removesuffix(".tar.gz")
    if not target.exists():
        address = urllib.parse.urljoin(about, source["url"])
        with urllib.request.urlopen(address, timeout=60) as answer:
            data = io.BytesIO(answer.read())
        with tarfile.open(fileobj=data) as archive:
            archive.extractall(folder, filter="data")
    return target


def start(
    tests: list[str], source: Path, limit_s: float, log: Path, told: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts pytest in a process of its own; a line per test goes to ``log``, what it prints beside it.

    Tests that have a line already are left out.

    Args:
        tests: files and folders in `source`.
        source: the unpacked source distribution.
        limit_s: seconds after which pytest is stopped.
        log: file for a line of JSON per test.
        told: variables of the environment that say how graphopt is installed.
    """
    environment = dict(os.environ, JAX_PLATFORMS="cpu", GRAPHOPT_TEST_LOG=str(log), **ENVIRONMENT)
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", **told}
    command = [
        "timeout", "-k", "60", "-s", "INT", str(limit_s),
        sys.executable, "-m", "pytest", "-q", "--color=no", "--tb=short",
        "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "graphopt_installed", "-W", "ignore",
        "--timeout", str(TEST_LIMIT_S), "--continue-on-collection-errors", *tests,
    ]  # fmt: skip
    with open(log.with_suffix(".txt"), "ab") as output:
        return subprocess.Popen(
            command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def modules_of(output: str) -> str:
    """Modules seen and rewritten, over all runs whose output is there."""
    reports = re.findall(r"^graphopt \(.*?\): (.*?); .*in the hook$", output, re.M)
    seen, rewritten = (
        sum(int(count) for report in reports for count in re.findall(rf"(\d+) {word}", report))
        for word in ("modules seen", "rewritten")
    )
    return f"{seen} modules seen: {rewritten} rewritten" if reports else "no report"


def finish(process: subprocess.Popen[bytes], log: Path) -> Suite:
    """Waits for a run and reads what it left."""
    status = process.wait()
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    output = log.with_suffix(".txt").read_text(errors="replace")
    return Suite(
        outcomes={row["test"]: row["outcome"] for row in rows},
        cpu_s={row["test"]: row["cpu_s"] for row in rows},
        ended=status in ENDED,
        killed=status < 0 or status in (128 + 6, 128 + 9, 128 + 11),
        seen=modules_of(output),
    )


def both(tests: list[str], source: Path, limit_s: float, stem: Path) -> tuple[Suite, Suite]:
    """The same tests with graphopt and without, side by side."""
    logs = [stem.with_name(f"{stem.name}-{way}.jsonl") for way in ("with", "without")]
    ways: tuple[dict[str, str], ...] = ({}, {"GRAPHOPT_DISABLE": "1"})
    runs = [start(tests, source, limit_s, *way) for way in zip(logs, ways, strict=True)]
    installed, default = (finish(run, log) for run, log in zip(runs, logs, strict=True))
    return installed, default


def failures(suite: Suite, among: set[str]) -> set[str]:
    """The tests that failed."""
    return {test for test in among if suite.outcomes[test] == "failed"}


def lost(installed: Suite, default: Suite) -> set[str]:
    """The tests that did not fail without graphopt, and with it failed or, though pytest ended, never ran."""
    fine = default.outcomes.keys() - failures(default, set(default.outcomes))
    ran = fine & installed.outcomes.keys()
    return failures(installed, ran) | (fine - ran if installed.ended else set())


def check(name: str, folder: Path, limit_s: float, source: Path | None) -> Comparison:
    """Runs one library's tests both ways; those of its source distribution if `source` is None."""
    source = source or source_of(name, folder)
    tests = (LIBRARIES | CHECKED_OUT)[name].split()
    installed, default = both(tests, source, limit_s, folder / name)
    common = installed.outcomes.keys() & default.outcomes.keys()
    doubtful = lost(installed, default)
    ours: set[str] = set()
    for log in folder.glob(f"{name}-again-*"):
        log.unlink()
    if doubtful:
        ours = lost(*both(sorted(doubtful), source, limit_s, folder / f"{name}-again"))
    return Comparison(
        library=name,
        version=importlib.metadata.version(name),
        jax=jax.__version__,
        tests=len(common),
        passed=sum(
            installed.outcomes[test] == default.outcomes[test] == "passed" for test in common
        ),
        failed_with=len(failures(installed, common)),
        failed_without=len(failures(default, common)),
        ours=tuple(sorted(ours)),
        cpu_with_s=sum(installed.cpu_s[test] for test in common),
        cpu_without_s=sum(default.cpu_s[test] for test in common),
        whole=installed.ended and default.ended,
        killed=installed.killed,
        seen=installed.seen,
    )


def main() -> int:
    """Prints a line per library; 1 if a test fails because of graphopt."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[n for n in LIBRARIES if is_installed(n)])
    parser.add_argument("--limit-s", type=float, default=7200.0)
    parser.add_argument("--folder", type=Path, default=Path("report/libraries"))
    parser.add_argument(
        "--source", type=Path, help="folder to take the tests of the one library from"
    )
    options = parser.parse_args()
    if options.source is None and not CHECKED_OUT.keys().isdisjoint(options.only):
        parser.error(f"say with --source where the tests of {', '.join(CHECKED_OUT)} are")
    if options.source is not None and len(options.only) != 1:
        parser.error("--source is for one library: name it with --only")
    source = options.source and options.source.resolve()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    bad = False
    with counted(options.only, "libraries tested") as rest:
        for name in rest:
            result = folder / f"{name}.json"
            comparison = Comparison(**json.loads(result.read_text())) if result.exists() else None
            if comparison is None or not comparison.whole:
                comparison = check(name, folder, options.limit_s, source)
                result.write_text(json.dumps(asdict(comparison), indent=1))
            bad = bad or bool(comparison.ours) or comparison.killed
            print(comparison.line(), flush=True)
            for test in comparison.ours:
                print(f"  only with graphopt: {test}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(ended(main))
