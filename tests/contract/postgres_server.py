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

__all__ = ["PostgresServer", "find_binaries", "give_away", "new_postgres", "running_server"]


def find_binaries() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``, the newest version if there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    which = shutil.which("postgres")
    return Path(which).resolve().parent if which else None


class PostgresServer:
    """A server with a directory of its own.

    Args:
        binaries: the directory of ``initdb`` and ``postgres``.
        home: the directory, which must be empty.
        primary: it is a standby of this one, which runs.
        address: where it listens for all besides its socket; nowhere if empty.
    """

    def __init__(self, binaries: Path, home: Path, primary: PostgresServer | None = None, address: str = "") -> None:
        self.conninfo = f"host={home} user=journal dbname=postgres"
        """How to connect to it as a superuser."""
        self.host = str(home)
        """The host in a connection string: the directory of its socket."""
        self._binaries = binaries
        self._home = home
        self._address = address
        self._user = give_away(home)
        # initdb alone may skip its syncs; the server, which is under test, syncs.
        options = ["-A", "trust", "-U", "journal", "-E", "UTF8", "--locale=C", "-N"]
        if primary is None:
            self._run("initdb", "-D", str(home / "data"), *options)
        else:
            primary.copy_to(self, "-R")
        if address:
            with (home / "data" / "pg_hba.conf").open("a") as trusted:
                trusted.write("host all all all trust\n")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._home, timeout=120, **self._user)

    def copy_to(self, other: PostgresServer, *options: str, name: str = "data") -> None:
        """Copy its data as they are now to a directory of a server, which may be itself; it runs."""
        connect = ["-h", self.host, "-U", "journal"]
        other._run("pg_basebackup", *connect, "-D", str(other._home / name), "-c", "fast", "-N", *options)

    def back_up(self) -> None:
        """Take a backup, which replaces the one before."""
        shutil.rmtree(self._home / "backup", ignore_errors=True)
        self.copy_to(self, name="backup")

    def restore(self) -> None:
        """Have the data of the backup from its next start on; it does not run."""
        shutil.rmtree(self._home / "data")
        (self._home / "backup").rename(self._home / "data")

    def has_all_of(self, primary: PostgresServer) -> bool:
        """Whether a standby that runs has what its primary has made durable by now."""
        with psycopg.connect(primary.conninfo) as db:
            [at] = db.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or [None]
        with psycopg.connect(self.conninfo) as db:
            return db.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (at,)).fetchone() == (True,)

    def promote(self) -> None:
        """Make a standby that runs a primary."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self._home / "data"))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        home = self._home
        with (home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    *("-D", home / "data", "-k", home),
                    *("-c", f"listen_addresses={self._address}", "-c", "shared_buffers=32MB"),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                start_new_session=True,
                **self._user,
            )
        _wait_until_up(self.conninfo, self._process, home / "log")

    def stop(self) -> None:
        """End it "fast": it ends the connections, and writes a checkpoint."""
        self._end(signal.SIGINT)

    def stop_at_once(self) -> None:
        """End it "immediately": it ends the connections, and recovers at the next start.

        A checkpoint would sync thousands of files, of all the schemas that tests made and dropped, which takes half a
        minute on a busy disk.
        """
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill all its processes at once, and wait until the last one has ended: no other server starts before."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=60)
        wait_until(lambda: not _runs_in(self._home / "data"), "processes of the server are left")

    def _end(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.wait(timeout=60)


@contextmanager
def new_postgres(primary: PostgresServer | None = None, address: str = "") -> Iterator[PostgresServer]:
    """Lend a server that is not started yet, and is to be stopped in the end; see `PostgresServer`."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed: make setup-tests"
    # Not below pytest's directory, which the server's own user may not enter.
    with new_directory("journal-pg-") as home:
        yield PostgresServer(binaries, home, primary, address)


@contextmanager
def running_server() -> Iterator[str]:
    """Run a server and yield how to connect to it as a superuser."""
    with new_postgres() as server:
        server.start()
        try:
            yield server.conninfo
        finally:
            server.stop_at_once()


def give_away(home: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: return whom to run it as, and give that user the directory."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _runs_in(directory: Path) -> bool:
    """Whether a process has a directory as its current one, as all of a server have that of its data."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == directory:
                return True
        except OSError:  # it has ended, or is another user's
            continue
    return False


def _wait_until_up(conninfo: str, server: subprocess.Popen[bytes], log: Path) -> None:
    def is_up() -> bool:
        try:
            psycopg.connect(conninfo).close()
        except psycopg.OperationalError:
            assert server.poll() is None, f"PostgreSQL did not start:\n{log.read_text(errors='replace')}"
            return False
        return True

    wait_until(is_up, "PostgreSQL did not start")
