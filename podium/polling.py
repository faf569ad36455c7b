"""`Poller`: the loop of a task that looks at a store when it is notified, and from time to time.

Notifications are hints: one may be lost with its process, so each look finds out what there is to do by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Any, Final

from chronicle.errors import ChronicleError

__all__ = ["LOOK_EVERY_S", "Poller"]

LOOK_EVERY_S: Final = 2.0
"""Longest interval of looks: a notification may be lost, and the machine's clock may be set."""


class Poller(ABC):
    """A task's loop. It survives failures of a look, and looks again after `LOOK_EVERY_S`.

    Args:
        subject: begins the names of its events in the log, such as ``reminders_not_read``.
        log: gets them.
    """

    def __init__(self, subject: str, log: Any) -> None:
        self._subject = subject
        self._log = log
        self._notified = asyncio.Event()

    def notice(self) -> None:
        """Look at once."""
        self._notified.set()

    async def run(self) -> None:
        """Look until the task is cancelled."""
        while True:
            self._notified.clear()
            wait_s = LOOK_EVERY_S
            try:
                wait_s = await self.look()
            except ChronicleError as error:
                self._log.warning(f"{self._subject}_not_read", error=str(error))
            except Exception:  # noqa: BLE001  a bug must not end the task: nothing would be done again
                self._log.exception(f"{self._subject}_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._notified.wait()

    @abstractmethod
    async def look(self) -> float:
        """Do what there is to do now, and return the seconds until the next look.

        Raises:
            ChronicleError: the store cannot be read.
        """
