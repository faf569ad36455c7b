"""What a server says of itself, for a diagnosis: nothing of it is needed to use a journal there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chronicle.journal.postgres.database import NOW_MS, check_server, connect

if TYPE_CHECKING:
    import psycopg

    from chronicle.clock import Clock

__all__ = ["ServerFacts", "read_server_facts"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server as one connection finds it."""

    version: str
    """Such as ``17.4``."""
    encrypted: bool
    """Whether the connection has TLS."""
    local: bool
    """Whether it leads to this machine."""
    writable: bool
    """Whether it takes writes: it is no standby, and its transactions are not read-only by default."""
    unsafe: tuple[str, ...]
    """Settings that let it lose what it has acknowledged, such as ``fsync``."""
    before_ms: int
    """This machine's time before the server was asked for its own."""
    now_ms: int
    """Its time."""
    after_ms: int
    """This machine's time after that."""


def read_server_facts(conninfo: str, name: str, clock: Clock) -> ServerFacts:
    """Connect to a server, and ask it.

    Args:
        conninfo: how to connect.
        name: of what is there, for messages.
        clock: this machine's.

    Raises:
        Unavailable: it cannot be reached, or refuses the connection.
        InvalidInput: it is too old, or reached through a pooler without sessions.
    """
    with connect(conninfo, name) as raw:
        check_server(raw, conninfo, name)
        before_ms = clock.now_ms()
        now_ms = _one(raw, NOW_MS)
        after_ms = clock.now_ms()
        settings = ("fsync", "full_page_writes")
        return ServerFacts(
            version=f"{raw.info.server_version // 10_000}.{raw.info.server_version % 10_000}",
            encrypted=bool(raw.pgconn.ssl_in_use),
            local=_is_local(raw),
            writable=not _one(raw, "SELECT pg_is_in_recovery()")
            and _one(raw, "SELECT current_setting('default_transaction_read_only')") == "off",
            unsafe=tuple(each for each in settings if _one(raw, f"SELECT current_setting('{each}')") == "off"),
            before_ms=before_ms,
            now_ms=now_ms,
            after_ms=after_ms,
        )


def _one(raw: psycopg.Connection[tuple[Any, ...]], statement: str) -> Any:
    row = raw.execute(statement.encode()).fetchone()
    assert row is not None, "it returns one row"
    return row[0]


def _is_local(raw: psycopg.Connection[tuple[Any, ...]]) -> bool:
    address = raw.info.hostaddr
    return not address or ipaddress.ip_address(address).is_loopback
