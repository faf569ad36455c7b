"""A real PostgreSQL server for tests, from Debian's binaries, on a socket in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_binaries", "give_away", "running_server"]

_START_S = 60.0


def find_binaries() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``, the newest version if there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    which = shutil.which("postgres")
    return Path(which).resolve().parent if which else None


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Run a server and yield how to connect to it as a superuser."""
    # Not below pytest's directory, which the server's own user may not enter.
    with new_directory("journal-pg-") as home:
        user = give_away(home)
        data = home / "data"
        # initdb alone may skip its syncs; the server, which is under test, syncs.
        command = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-A",
            "trust",
            "-U",
            "journal",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=home, timeout=120, **user)
        log = (home / "log").open("wb")
        with log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", home, "-c", "listen_addresses=", "-c", "shared_buffers=32MB"],
                stdout=log,
                stderr=log,
                cwd=home,
                **user,
            )
        try:
            conninfo = f"host={home} user=journal dbname=postgres"
            _wait_until_up(conninfo, server, home / "log")
            yield conninfo
        finally:
            # "immediate": ends the connections, and writes no checkpoint. That would sync thousands of files, of all
            # the schemas that tests made and dropped, which takes half a minute on a busy disk.
            server.send_signal(signal.SIGQUIT)
            server.wait(timeout=60)


def give_away(home: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: return whom to run it as, and give that user the directory."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _wait_until_up(conninfo: str, server: subprocess.Popen[bytes], log: Path) -> None:
    def is_up() -> bool:
        try:
            psycopg.connect(conninfo).close()
        except psycopg.OperationalError:
            assert server.poll() is None, f"PostgreSQL did not start:\n{log.read_text(errors='replace')}"
            return False
        return True

    wait_until(is_up, "PostgreSQL did not start")
