"""Long commands show how far they are, and say after Ctrl-C what is done; no process of theirs is left."""

import os
import pty
import re
import signal
import subprocess
import sys
from threading import Thread

import psutil
import pytest
from support.processes import LIMIT_S, becomes, environment, is_alive

from graphopt.progress import steps

MANY = "5000"

SOME_DONE = r"[1-9]\d*/\d+\b.*left:"

COMMANDS = {
    "fuzz": (
        ["fuzz", "--workloads", "support.misbehaving:NEVER_BUILT", "--graphs", "fine"],
        ["--trials", MANY, "--workers", "1"],
        ["trials made", "trials on 1 programs", "0 abort"],
    ),
    "fuzz --lazy": (
        ["fuzz", "--lazy"],
        ["--trials", MANY],
        ["programs checked", "0 with different results"],
    ),
    "corpus verify": (
        ["corpus", "verify", "--split", "validation"],
        ["--workers", "1"],
        ["programs verified", "rewrites"],
    ),
}


class Terminal:
    """The terminal that a process has as its standard error, read as it is written."""

    def __init__(self):
        self.own, self.end = pty.openpty()
        self.text = ""
        self._reader = Thread(target=self._read)

    def _read(self):
        try:
            while data := os.read(self.own, 4096):
                self.text += data.decode(errors="replace")
        except OSError:  # what Linux says when nobody writes there any more
            pass

    def start(self):
        """Reads on until no process has the terminal open."""
        os.close(self.end)
        self._reader.start()

    def shows(self, pattern):
        return re.search(pattern, self.text) is not None

    def finish(self):
        self._reader.join(LIMIT_S)
        os.close(self.own)


@pytest.mark.parametrize(
    "name", ["fuzz", "fuzz --lazy", pytest.param("corpus verify", marks=pytest.mark.slow)]
)
def test_an_interrupted_command_says_what_is_done(name):
    command, options, said = COMMANDS[name]
    terminal = Terminal()
    process = subprocess.Popen(
        [sys.executable, "-m", "graphopt", *command, *options],
        env=environment(TERM="xterm", COLUMNS="150", MISBEHAVING="unused"),
        stdout=subprocess.PIPE,
        stderr=terminal.end,
        text=True,
    )
    terminal.start()
    try:
        assert becomes(lambda: terminal.shows(SOME_DONE) or process.poll() is not None, LIMIT_S)
        assert process.poll() is None, terminal.text
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
        terminal.finish()
    assert process.returncode == 130
    assert "Traceback" not in terminal.text + output
    assert re.search(r"interrupted: [1-9]\d* of \d+ ", output)
    assert all(text in output for text in said), output
    assert (len(children) > 0) == (name != "fuzz --lazy")
    assert becomes(lambda: not any(is_alive(child.pid) for child in children), 10.0)


def test_where_there_is_no_terminal_nothing_but_the_interrupt_is_said(capsys):
    from rich.console import Console

    with pytest.raises(KeyboardInterrupt), steps(Console(), 3, "programs measured") as show:
        show("one", 0)
        show("two", 1)
        raise KeyboardInterrupt
    said = capsys.readouterr()
    assert (said.out, said.err) == ("interrupted: 1 of 3 programs measured\n", "")


def test_an_interrupt_that_a_finalizer_swallows_ends_the_work_at_the_next_step(capsys):
    from rich.console import Console

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), steps(Console(), 3, "programs measured") as show:
        show("one", 0)
        Finalized()
        show("two", 1)
        raise AssertionError("went on")
    said = capsys.readouterr()
    assert "interrupted: 1 of 3 programs measured" in said.out and not said.err
    assert signal.getsignal(signal.SIGINT) is handler
