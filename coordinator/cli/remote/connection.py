"""The connection of one command to a gateway."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from chronicle.cli_kit.progress import Progress
from coordinator.client.async_client import AsyncPodium
from coordinator.client.errors import ResourceNotFound
from podium.errors import UnknownMoment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

__all__ = ["Gateway", "Moment", "ask", "moment_of"]

_T = TypeVar("_T")
_QUIET_S: Final = 1.0
"""A command that takes longer says what it waits for."""
_TURN: Final = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a command's agents are.

    Attributes:
        url: the gateway's.
        key: the API key; empty for the client's default.
    """

    url: str
    key: str


@dataclass(frozen=True, slots=True)
class Moment:
    """An agent, and one of its turns; ``None`` for the last one."""

    agent: str
    turn: int | None


def ask(gateway: Gateway, doing: str, call: Callable[[AsyncPodium], Coroutine[Any, Any, _T]]) -> _T:
    """Return the result of a call to a gateway.

    Args:
        doing: what is shown if the call takes longer than a second.

    Raises:
        ClientError: the call was refused, or the gateway could not be reached.
    """

    async def asking() -> _T:
        async with AsyncPodium(url=gateway.url, key=gateway.key or None) as podium:
            return await _with_progress(doing, call(podium))

    return asyncio.run(asking())


async def moment_of(podium: AsyncPodium, text: str) -> Moment:
    """Parse ``AGENT`` or ``AGENT@TURN``. An agent with the whole text as its address takes precedence.

    Raises:
        UnknownMoment: the turn is negative.
    """
    name, at, turn = text.rpartition("@")
    if not at or not _TURN.fullmatch(turn):
        return Moment(text, None)
    try:
        await podium.agent(text)
    except ResourceNotFound:
        if int(turn) < 0:
            raise UnknownMoment(
                f"turns count from 0, the agent's creation; there is no turn {turn} of {name}"
            ) from None
        return Moment(name, int(turn))
    return Moment(text, None)


async def _with_progress(doing: str, call: Awaitable[_T]) -> _T:
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait((task,), timeout=_QUIET_S)
        if done:
            return task.result()
        with Progress(lines=False) as progress:
            progress.show(doing)
            return await task
    finally:
        task.cancel()
