"""The audit record: who did what with keys and with administrators' rights, as lines of JSON in ``logs/audit.log``.

A line has ``ts`` (ISO 8601, UTC), ``who`` (a key's id; ``cli`` with the user's number for the command line; ``null``
without keys), ``tenant``, ``what``, ``agent``, ``outcome`` (``ok``, or the error's code), and ``client``, the address
that it came from. It never has the text of a key, of a message or of a file. The file is appended to only, by whole
lines, and rotated as other logs are.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.clock import Clock

__all__ = ["FILE", "Audit"]

FILE: Final = "audit.log"
_log: Final = structlog.stdlib.get_logger("coordinator.access.audit")


class Audit:
    """The audit record of a home.

    Args:
        logs: the directory of the home's logs.
        clock: the time.
    """

    def __init__(self, logs: Path, clock: Clock) -> None:
        self._path = logs / FILE
        self._clock = clock

    def note(
        self,
        who: str | None,
        what: str,
        *,
        tenant: str | None = None,
        agent: str | None = None,
        outcome: str = "ok",
        client: str | None = None,
        **more: str | int | None,
    ) -> None:
        """Append a line. A failure is logged: an action that was done cannot be refused any more."""
        line = {
            "ts": datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds"),
            "who": who,
            "tenant": tenant,
            "what": what,
            "agent": agent,
            "outcome": outcome,
            "client": client,
            **more,
        }
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, json.dumps(line).encode() + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            _log.error("audit_not_written", what=what, who=who, error=str(error))

    @contextmanager
    def noting(
        self,
        who: str | None,
        what: str,
        *,
        tenant: str | None = None,
        agent: str | None = None,
        client: str | None = None,
        **more: str | int | None,
    ) -> Iterator[dict[str, str | int | None]]:
        """Append a line about what the context does when it has ended, with its outcome.

        The context gets what the line has beside, to which it may add what it makes.
        """
        outcome = "ok"
        try:
            yield more
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self.note(who, what, tenant=tenant, agent=agent, outcome=outcome, client=client, **more)
