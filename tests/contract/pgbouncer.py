"""A real PgBouncer before a PostgreSQL server, from Debian's binary, on a socket in a directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.contract.postgres_server import give_away
from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_pgbouncer", "running_pooler"]


def find_pgbouncer() -> str | None:
    """Return the program, ``None`` if it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def running_pooler(program: str, server: str, pool_mode: str) -> Iterator[str]:
    """Run a pooler before a server, and yield how to connect through it."""
    to_server = conninfo_to_dict(server)
    with new_directory("journal-pool-") as home:
        user = give_away(home)
        (home / "pgbouncer.ini").write_text(
            f"[databases]\n{to_server['dbname']} = host={to_server['host']} user={to_server['user']}\n"
            f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {home}\nauth_type = any\npool_mode = {pool_mode}\n"
            f"logfile = {home / 'log'}\npidfile = {home / 'pid'}\nignore_startup_parameters = extra_float_digits\n"
        )
        pooler = subprocess.Popen([program, home / "pgbouncer.ini"], cwd=home, stderr=subprocess.DEVNULL, **user)
        try:
            conninfo = make_conninfo(host=str(home), port=6432, user=to_server["user"], dbname=to_server["dbname"])
            wait_until(lambda: _answers(conninfo, pooler, home / "log"), "the pooler did not start")
            yield conninfo
        finally:
            pooler.terminate()
            pooler.wait(timeout=60)


def _answers(conninfo: str, pooler: subprocess.Popen[bytes], log: Path) -> bool:
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        assert pooler.poll() is None, f"the pooler did not start:\n{log.read_text(errors='replace')}"
        return False
    return True
