"""The example with PyTorch models by torchax: equal results, a falling loss, modules seen by graphopt."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "torchax_model.py"

MISSING = [name for name in ("torch", "torchax") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_a_torch_model_by_torchax() -> None:
    script = (
        f"import runpy; main = runpy.run_path({str(EXAMPLE)!r})['main']\n"
        "difference, losses = main()\n"
        "assert difference < 1e-4, difference\n"
        "assert losses[-1] < 0.5 * losses[0], losses\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "modules seen" in done.stdout
    assert "0 fell back" in done.stdout
