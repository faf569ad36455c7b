"""Ending the gateway and the service of a home, from another process."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coordinator.gateway_record import gateway_runs, read_record
from coordinator.service.client import ServiceError
from coordinator.service.connecting import START_TIMEOUT_S, attach, wait_ended
from coordinator.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.home import Home

__all__ = ["Ended", "end_all"]

_MARGIN_S: Final = 90.0
"""Margin of an orderly end beyond the timeout of running turns; then the gateway is killed."""
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """Processes that were running, and have ended."""

    gateway: bool
    service: bool


async def end_all(home: Home, on_progress: Callable[[str], None]) -> Ended:
    """End the gateway of a home, which ends the service, or the service alone if there is no gateway.

    Args:
        on_progress: called with a short description of the stage.

    Raises:
        ServiceError: the service did not end in time.
    """
    timeout_s = read_settings().stop_timeout_s + _MARGIN_S
    ended = Ended(gateway_runs(home), home.service_alive())
    on_progress("ending the agents' turns")
    if ended.gateway:
        await _end_gateway(home, timeout_s)
    async with attach(home, elsewhere=False) as client:  # after a gateway that was killed
        if client is not None:
            await client.down()
    await wait_ended(home, timeout_s)
    return ended


async def _end_gateway(home: Home, timeout_s: float) -> None:
    """End the gateway by a signal; kill it if it does not end in time."""

    def is_known_or_gone() -> bool:
        return read_record(home) is not None or not gateway_runs(home)

    if not await _wait_until(is_known_or_gone, START_TIMEOUT_S):
        raise ServiceError(f"the gateway is starting, and does not get on; see {home.logs}")
    record = read_record(home)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if record is None or not gateway_runs(home):
            return
        _signal(record.pid, number)
        if await _wait_until(lambda: not gateway_runs(home), timeout_s):
            return


async def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for what another process does; return whether it was in time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        return
