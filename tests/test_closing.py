"""What ends with its owner: once, and never from a copy of it in a forked process."""

from __future__ import annotations

import gc

import pytest
from support.processes import run_python

from graphopt.closing import ends_with


class Owner:
    """Holds nothing."""


@pytest.mark.parametrize("asked", [True, False])
def test_it_ends_once(asked):
    ended, owner = [], Owner()
    end = ends_with(owner, ended.append, "here")
    if asked:
        end()
        end()
    del owner
    gc.collect()
    assert ended == ["here"]


def test_a_forked_copy_ends_nothing():
    done = run_python(
        "-c",
        """
import os
from graphopt.closing import ends_with

class Owner: pass

owner = Owner()
ends_with(owner, os.write, 1, b"ended\\n")
if not os.fork():
    del owner
    os._exit(0)
os.wait()
os.write(1, b"joined\\n")
del owner
""",
    )
    assert done.stdout.split() == ["joined", "ended"], done.stderr
