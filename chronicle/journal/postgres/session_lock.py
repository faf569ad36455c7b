"""A lock that a session of the server holds: it is free when the process that has it, or its machine, is gone."""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg

from chronicle.errors import Unavailable

__all__ = ["SessionLock"]

_CLASS: Final = 0x4348_4A4C
"""The first key of these advisory locks; the second one is the hash of the name."""
_CONNECT_S: Final = 10
_ALIVE: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A server that is gone is known to be so after 25 s; over TCP only, as what follows."""
_ALIVE_THERE: Final = """
SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3;
SET tcp_user_timeout TO 25000
"""
"""The same for the server, which has the session of a machine that is gone for two hours otherwise."""
_TRIES, _PAUSE_S = 50, 0.1
"""Tries to get the lock from an earlier session of the same holder, and the pause between them."""
_HOLDER: Final = """
SELECT application_name, pid FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND classid = %s AND objid = hashtext(%s)::bigint & 4294967295 AND granted
"""


class SessionLock:
    """A lock by name.

    Args:
        conninfo: how to connect to the database.
        name: the name.
        holder: who takes it, for others; shown by the server as the name of an application, at most 63 bytes of it.
            There is one of these 63 bytes at a time: an earlier session that the server still has is ended.
    """

    def __init__(self, conninfo: str, name: str, holder: str) -> None:
        self._conninfo = conninfo
        self._name = name
        self._holder = holder.encode(errors="replace")[:63].decode(errors="ignore")
        self._session: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_released = False

    def hold(self) -> str | None:
        """Acquire the lock, or make sure that it is held still: a connection that has ended is made again.

        Returns:
            ``None`` if it is held; else who has it.

        Raises:
            Unavailable: the server cannot be reached; whether the lock is held is not known. Or it was released, also
                by another thread meanwhile: then it is not held.
        """
        try:
            holder = self._hold()
        except psycopg.Error as error:
            raise Unavailable(f"the lock {self._name}: {str(error).strip().partition(chr(10))[0]}") from error
        if self._is_released:
            self._close()
            raise Unavailable(f"the lock {self._name} was released")
        return holder

    def _hold(self) -> str | None:
        if self._session is not None and self._is_alive(self._session):
            return None
        self._session = psycopg.connect(
            self._conninfo, autocommit=True, connect_timeout=_CONNECT_S, application_name=self._holder, **_ALIVE
        )
        self._session.execute(_ALIVE_THERE)
        return self._take(self._session)

    def release(self) -> None:
        """Release the lock for good, if it is held."""
        self._is_released = True  # first: a call of `hold` that connects again meanwhile closes its own session
        self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _take(self, session: psycopg.Connection[tuple[Any, ...]]) -> str | None:
        found = "another process"
        for _ in range(_TRIES):
            row = session.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_CLASS, self._name)).fetchone()
            if row == (True,):
                return None
            holder = session.execute(_HOLDER, (_CLASS, self._name)).fetchone()
            if holder is not None:
                found, pid = holder
                if found != self._holder:
                    break
                session.execute("SELECT pg_terminate_backend(%s)", (pid,))
            time.sleep(_PAUSE_S)
        session.close()
        return found

    @staticmethod
    def _is_alive(session: psycopg.Connection[tuple[Any, ...]]) -> bool:
        try:
            session.execute("SELECT 1")
        except psycopg.Error:
            session.close()
            return False
        return True
