"""`lt.set_devices`: in a child process, which may have two CPU devices."""

from __future__ import annotations

from pathlib import Path

from support.processes import run_python


def test_on_two_devices() -> None:
    done = run_python(str(Path(__file__).parent / "two_lazy_devices.py"))
    assert done.returncode == 0 and done.stdout.strip().endswith("ok"), done.stderr[-3000:]
