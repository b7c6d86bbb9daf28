"""The tests of third-party libraries, run with graphopt installed.

    python -m benchmarks.conformance.libraries [--only optax distrax] [--limit-s 300] [--folder FOLDER]

Wants the environment of ``benchmarks/third_party/requirements.txt`` and pytest with pytest-timeout. Fetches
the source distribution of the version that is installed, runs its tests for at most so long, and runs those
that fail, or cannot be collected, again, with ``GRAPHOPT_DISABLE=1`` and without: what fails with it too, or
passes among fewer tests, is not ours.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]

LIBRARIES: Final = {
    "distrax": "distrax", "rlax": "rlax", "dynamax": "dynamax", "optax": "optax", "dm-haiku": "haiku",
    "tinygp": "tests", "e3nn-jax": "e3nn_jax tests", "jax-cfd": "jax_cfd", "mctx": "mctx", "brax": "brax",
    "flax": "tests/linen tests/nnx", "blackjax": "tests", "numpyro": "test", "gymnax": "tests",
    "dm_pix": "dm_pix", "flashbax": "flashbax", "jraph": "jraph", "quax": "tests", "mujoco-mjx": "mujoco",
}  # fmt: skip
"""Distribution -> where in its source distribution the tests are."""


CRASH: Final = "(the process was killed by a signal)"
KILLED: Final = 128
"""Exit statuses from here on are those of signals."""


@dataclass(frozen=True)
class Outcome:
    """What one library's tests gave.

    Attributes:
        counts: pytest's own summary.
        seen: graphopt's: modules seen, rewritten, kept, fallen back.
        ours: tests that fail with graphopt, by themselves too, and pass without.
    """

    counts: str
    seen: str
    ours: list[str]


def fetch(name: str, folder: Path) -> Path:
    """The unpacked source distribution of the installed version."""
    version = importlib.metadata.version(name)
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


def run(tests: list[str], source: Path, limit_s: float, *, disabled: bool) -> tuple[str, list[str]]:
    """Output of pytest, interrupted after so many seconds; what failed, was not collected, or crashed."""
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    if disabled:
        environment["GRAPHOPT_DISABLE"] = "1"
    command = [
        "timeout", "-k", "60", "-s", "INT", str(limit_s),
        sys.executable, "-m", "pytest", "-q", "-rfE", "--color=no", "--tb=short",
        "-p", "no:cacheprovider", "-p", "graphopt_installed", "-W", "ignore",
        "--timeout", str(limit_s), "--continue-on-collection-errors", *tests,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
    return output, [*failed, CRASH] if done.returncode >= KILLED else failed


def check(name: str, folder: Path, limit_s: float) -> Outcome:
    """Runs one library's tests."""
    source = fetch(name, folder)
    output, failed = run(LIBRARIES[name].split(), source, limit_s, disabled=False)
    (folder / f"{name}.txt").write_text(output)
    again = [test for test in failed if test != CRASH]
    without = run(again, source, limit_s, disabled=True)[1] if again else []
    doubtful = [test for test in again if test not in without]
    alone = run(doubtful, source, limit_s, disabled=False)[1] if doubtful else []
    ours = [test for test in failed if test == CRASH or test in alone]
    counts = re.findall(r"^.*\d+ (?:passed|failed).*$", output, re.M) or ["no summary"]
    seen = re.findall(r"^graphopt \(.*?\): (.*?); .*in the hook$", output, re.M) or ["no report"]
    return Outcome(counts[-1], seen[-1], ours)


def main() -> int:
    """Prints a line per library; 1 if a test fails because of graphopt."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(LIBRARIES))
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--folder", type=Path, default=Path("report/libraries"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ours = 0
    for name in options.only:
        outcome = check(name, options.folder.resolve(), options.limit_s)
        ours += len(outcome.ours)
        print(
            f"{name}: {outcome.counts}; {outcome.seen}; only with graphopt: {outcome.ours}",
            flush=True,
        )
    return int(ours > 0)


if __name__ == "__main__":
    sys.exit(main())
