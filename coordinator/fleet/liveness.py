"""Waits with liveness probes of the peer, in place of a deadline, for operations of unlimited duration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from podium.errors import HostDied
from podium.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["PROBES_PER_SILENCE", "TASKS_CANCELLED", "fate_of_silent", "until_ended", "until_hung", "with_probes"]

PROBES_PER_SILENCE: Final = 6
"""Liveness probes per silence timeout."""
TASKS_CANCELLED: Final = (
    "code in the agent's process cancelled tasks that are not its own, such as all of its event loop"
)
"""What is wrong with a host whose calls or activations were cancelled in it."""

_T = TypeVar("_T")


async def with_probes(answer: Awaitable[_T], interval_s: float, probe: Callable[[], Awaitable[None]]) -> _T:
    """Await an answer, with a probe after each interval without one; an exception of a probe ends the wait."""
    with beside(answer) as waiting:
        while not (await asyncio.wait({waiting}, timeout=interval_s))[0]:
            await probe()
        return waiting.result()


async def until_hung(
    answer: Awaitable[_T], hang_s: float, silence_s: float, computes: Callable[[], Awaitable[bool]]
) -> _T:
    """Await the answer of a process to a liveness probe, for longer while the process computes.

    Args:
        answer: of the process.
        hang_s: seconds after which a process that does not compute hangs.
        silence_s: seconds after which it counts as dead in any case.
        computes: returns whether it does, or waits for the processor or the disk.

    Raises:
        HostDied: it did not answer.
    """
    waited_s = 0.0
    with beside(answer) as waiting:
        while waited_s < silence_s:
            if (await asyncio.wait({waiting}, timeout=hang_s))[0]:
                return waiting.result()
            waited_s += hang_s
            if not await computes() and not waiting.done():  # an answer may have come meanwhile
                raise HostDied(f"it did not answer for {waited_s:g} s, and did nothing")
        raise HostDied(f"it did not answer for {waited_s:g} s")


def fate_of_silent(probed_after_s: float, hang_s: float, silence_s: float) -> str:
    """Return what becomes of a process that does not answer, for people."""
    late = f"or {probed_after_s + silence_s:g} s while it computes"
    return f"it is replaced after {probed_after_s + hang_s:g} s of silence, {late}"


async def until_ended(answer: Awaitable[_T], ended: asyncio.Event) -> _T:
    """Await an answer of a process, unless an event tells that the process has ended.

    Raises:
        HostDied: it has ended without an answer, or the call was cancelled in it, as by code that cancels all tasks.
    """
    with beside(answer) as waiting, beside(ended.wait()) as ending:
        await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise HostDied("its process has ended")
        if waiting.cancelled():  # not this call: a cancellation of it is raised by the wait above
            raise HostDied("the call was cancelled in its process")
        return waiting.result()
