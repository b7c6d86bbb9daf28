"""Runs a module or code in a child process that does not outlive its parent."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time


def run_watched(arguments: list[str]) -> None:
    """Runs ``PARENT -m module ARGS`` or ``PARENT -c code ARGS``; exits when process PARENT is gone.

    A parent that is killed cannot end its children, so each child looks for itself.
    """
    parent, flag, target, *rest = arguments
    threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()
    sys.argv = [target, *rest]
    if flag == "-m":
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = "-c"
        exec(compile(target, "<child>", "exec"), {"__name__": "__main__"})


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
