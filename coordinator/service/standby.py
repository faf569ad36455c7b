"""A service that takes part in hand-overs: it stands by for the claim on the home, and gives it away when told to.

`podium hand-over NAME` orders that the service of that name serves (`coordinator.fleet.services.handover`). The one
that serves sees the order, and that the other one stands by; it admits no more, releases the claim, and ends its turns.
The other one takes the claim at its next try. So each of them may be killed at any moment: the claim is free then, and
whoever stands by has it, the one that was ordered first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self

import structlog

from chronicle.errors import ChronicleError
from coordinator.fleet.services.handover import (
    TELL_S,
    Freshness,
    MemberState,
    member,
    ordered,
    tell_draining,
    tell_member,
)
from podium.errors import HomeError
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.documents import Documents
    from coordinator.homes.records import ServiceClaim

__all__ = ["Standby"]

_TRY_S: Final = 0.25
"""Interval of tries to get the claim: a part of the gap of a hand-over, and a connection to the database each."""
_PREFERENCE_S: Final = 15.0
"""How long others leave the claim to the service that is ordered and has gone: it is started again, most often."""
_LEFTOVERS_S: Final = 30.0
"""How long actors of a service that was killed may need to end."""

_log = structlog.stdlib.get_logger(__name__)


class Standby:
    """The part of one service in hand-overs. While its context lasts it tells what it does.

    Args:
        name: of this service.
        documents: of the home.
        claim: the claim on the home, not held yet.
    """

    def __init__(self, name: str, documents: Documents, claim: ServiceClaim) -> None:
        self._name = name
        self._documents = documents
        self._claim = claim
        self._parent = os.getppid()
        self._state = MemberState.STARTING
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        self._tasks.spawn(self._tell_again(), "tell-service")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.close()
        with contextlib.suppress(ChronicleError):  # others notice that it is silent
            if self._state is MemberState.DRAINING:
                await asyncio.to_thread(tell_draining, self._documents, self._name, ended=True)
            await asyncio.to_thread(tell_member, self._documents, self._name, None, version("podium"))

    async def take_claim(
        self, stopping: asyncio.Event, prepare: Callable[[], Awaitable[bool]], on_stage: Callable[[str], None]
    ) -> bool:
        """Wait until this service has the claim; return ``False`` if it is to end instead.

        Args:
            stopping: set when it is to end.
            prepare: starts what may run before; returns whether that was possible.
            on_stage: called with a short description of each stage.

        Raises:
            HomeError: the service that has the home uses the same Ray cluster.
        """
        turn = _Turn(self._documents, self._name)
        prepared, begun_s = False, time.monotonic()
        while not (stopping.is_set() or os.getppid() != self._parent):
            if await self._take(turn):
                self._state = MemberState.SERVING
                _log.info("claim_taken", service=self._name)
                return True
            if not prepared:
                prepared = await prepare()
                if prepared:
                    on_stage("standing by")
                    self._state = MemberState.STANDBY
                    await self._tell()
                    _log.info("standing_by", service=self._name)
                elif time.monotonic() - begun_s > _LEFTOVERS_S:
                    raise HomeError(
                        "the service that has this home runs its agents on the same Ray cluster: a service that stands "
                        "by needs a cluster of its own (podium up --standby --ray ADDRESS)"
                    )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TRY_S):
                    await stopping.wait()
        return False

    async def wait_ordered_away(self) -> None:
        """Return when another service is ordered to serve, and stands by."""
        told = Freshness(is_seen=False)
        while True:
            await asyncio.sleep(TELL_S / 2)
            try:
                name = await asyncio.to_thread(ordered, self._documents)
                other = await asyncio.to_thread(member, self._documents, name) if name else None
            except ChronicleError as error:
                _log.warning("order_not_known", error=str(error))
                continue
            stands_by = other is not None and name != self._name and other.state is MemberState.STANDBY
            if told.holds(other.told_ms if other is not None and stands_by else None):
                _log.info("handing_over", service=self._name, to=name)
                return

    async def begin_draining(self) -> bool:
        """Tell that turns of this service are to end, so that nobody takes their agents; whether it could be told."""
        try:
            await asyncio.to_thread(tell_draining, self._documents, self._name)
        except ChronicleError as error:
            _log.warning("not_handed_over", error=str(error))
            return False
        self._state = MemberState.DRAINING
        return True

    async def _take(self, turn: _Turn) -> bool:
        """Try to get the claim."""
        try:
            if not await asyncio.to_thread(turn.is_ours):
                return False
            await asyncio.to_thread(self._claim.hold)
        except (ChronicleError, HomeError):  # another one has it, or it is not known
            return False
        return True

    async def _tell(self) -> None:
        await asyncio.to_thread(tell_member, self._documents, self._name, self._state, version("podium"))
        if self._state is MemberState.DRAINING:
            await asyncio.to_thread(tell_draining, self._documents, self._name)

    async def _tell_again(self) -> None:
        while True:
            try:
                await self._tell()
            except ChronicleError as error:
                _log.warning("service_not_told", error=str(error))
            await asyncio.sleep(TELL_S)


class _Turn:
    """Whether a service may take the claim when it is free.

    Args:
        name: of the service.
    """

    def __init__(self, documents: Documents, name: str) -> None:
        self._documents = documents
        self._name = name
        self._ordered = Freshness(is_seen=True)
        self._of = ""

    def is_ours(self) -> bool:
        """Return whether no other service is ordered that is there, or was a moment ago; it blocks.

        Raises:
            ChronicleError: it is not known.
        """
        name = ordered(self._documents)
        if not name or name == self._name:
            return True
        if name != self._of:
            self._of, self._ordered = name, Freshness(is_seen=True)
        found = member(self._documents, name)
        self._ordered.holds(found.told_ms if found is not None else None)
        return self._ordered.age_s > _PREFERENCE_S
