"""`SkewReport`: says once that this machine's clock and the database's differ."""

from __future__ import annotations

from typing import Final

import structlog

__all__ = ["BOUND_MS", "SkewReport", "ahead_ms"]

BOUND_MS: Final = 2_000
"""More than clocks differ that NTP sets, and too little to move a reminder or a deadline that people notice."""

_log = structlog.stdlib.get_logger("coordinator.homes.skew")


def ahead_ms(before_ms: int, server_ms: int, after_ms: int) -> int:
    """Return by how much this machine's clock is certainly ahead of a server's; negative if it is behind.

    Args:
        before_ms: this machine's time before the server was asked.
        server_ms: its answer.
        after_ms: this machine's time after that.
    """
    return max(before_ms - server_ms, 0) - max(server_ms - after_ms, 0)


class SkewReport:
    """A report of one process."""

    def __init__(self) -> None:
        self._is_made = False

    def compare(self, before_ms: int, server_ms: int, after_ms: int) -> None:
        """Warn if the server's clock is out of the bound, for the first time.

        Args:
            before_ms: this machine's time before the server was asked.
            server_ms: its answer.
            after_ms: this machine's time after that.
        """
        ahead = ahead_ms(before_ms, server_ms, after_ms)
        if abs(ahead) > BOUND_MS and not self._is_made:
            self._is_made = True
            _log.warning(
                "clock_skew",
                ahead_of_database_s=ahead / 1000,
                then="leases go by the database's clock, times in the journal by those of machines: let NTP set both",
            )
