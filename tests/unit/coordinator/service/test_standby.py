"""Services that stand by for the claim on a home, and give it away when another one is ordered to serve."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from coordinator.documents import FileDocuments
from coordinator.fleet.services.handover import Member, MemberState, draining, give_order, member
from coordinator.service import standby
from coordinator.service.standby import Standby
from podium.errors import HomeError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEADLINE_S = 60


class Claim:
    """The one claim on a home, of which each service has a handle."""

    holder: Claim | None = None

    def hold(self) -> None:
        if Claim.holder not in (None, self):
            raise HomeError("another service has this home")
        Claim.holder = self

    def release(self) -> None:
        if Claim.holder is self:
            Claim.holder = None


class Service:
    """A service up to where it would serve."""

    def __init__(self, name: str, documents: FileDocuments) -> None:
        self.claim = Claim()
        self.standby = Standby(name, documents, self.claim)
        self.stopping = asyncio.Event()
        self.prepared = asyncio.Event()
        self.can_prepare = True

    async def prepare(self) -> bool:
        if self.can_prepare:
            self.prepared.set()
        return self.can_prepare

    async def take(self) -> bool:
        return await self.standby.take_claim(self.stopping, self.prepare, lambda _: None)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_TRY_S", 0.02)
    monkeypatch.setattr(standby, "TELL_S", 0.04)
    monkeypatch.setattr(Claim, "holder", None)


@pytest.fixture
def documents(tmp_path: Path) -> FileDocuments:
    return FileDocuments(tmp_path)


@pytest.fixture
async def services(documents: FileDocuments) -> AsyncIterator[list[Service]]:
    services = [Service(name, documents) for name in ("old", "new")]
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        for service in services:
            await stack.enter_async_context(service.standby)
        yield services


def state(documents: FileDocuments, name: str) -> MemberState | None:
    found = member(documents, name)
    return found.state if found is not None else None


async def test_the_first_one_has_the_home_and_the_second_one_when_that_gives_it_away_by_order(
    services: list[Service], documents: FileDocuments
) -> None:
    old, new = services
    assert await old.take()
    assert not old.prepared.is_set(), "it was kept waiting"
    taking = asyncio.ensure_future(new.take())
    away = asyncio.ensure_future(old.standby.wait_ordered_away())
    await new.prepared.wait()
    await until(lambda: state(documents, "new") is MemberState.STANDBY)
    give_order(documents, "old")
    await asyncio.wait({away}, timeout=0.2)
    assert not away.done(), "it serves already"
    give_order(documents, "new")
    await away
    assert await old.standby.begin_draining()
    assert draining(documents) is not None
    assert not taking.done()
    old.claim.release()
    assert await taking
    await until(
        lambda: (state(documents, "old"), state(documents, "new")) == (MemberState.DRAINING, MemberState.SERVING)
    )
    await old.standby.__aexit__()
    assert draining(documents) is None
    assert state(documents, "old") is None


async def test_an_order_for_one_that_does_not_stand_by_is_not_followed(
    services: list[Service], documents: FileDocuments
) -> None:
    old, new = services
    assert await old.take()
    new.can_prepare = False
    taking = asyncio.ensure_future(new.take())
    give_order(documents, "new")
    away = asyncio.ensure_future(old.standby.wait_ordered_away())
    await asyncio.wait({away, taking}, timeout=0.3)
    assert not away.done()
    new.can_prepare = True
    await away
    new.stopping.set()
    assert not await taking


async def test_what_a_later_version_does_is_not_known_and_stops_nobody(
    services: list[Service], documents: FileDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = services
    monkeypatch.setattr(standby, "_PREFERENCE_S", 0.2)
    told = {"state": "something new", "podium": "9.0", "told_ms": 1}
    documents.write("service-later.json", json.dumps(told).encode())
    assert member(documents, "later") == Member(None, "9.0", 1)
    give_order(documents, "later")
    away = asyncio.ensure_future(old.standby.wait_ordered_away())
    assert await old.take(), "it tells nothing any more"
    assert not away.done()
    away.cancel()


async def test_a_free_claim_is_for_the_one_that_is_ordered_and_soon_for_anybody_if_that_is_gone(
    services: list[Service], documents: FileDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = services
    give_order(documents, "new")
    taking = asyncio.ensure_future(old.take())
    await asyncio.wait({taking}, timeout=0.3)
    assert not taking.done()
    assert await new.take()
    new.claim.release()
    await new.standby.__aexit__()
    monkeypatch.setattr(standby, "_PREFERENCE_S", 0.1)
    assert await taking


async def test_one_on_the_ray_cluster_of_the_service_that_has_the_home_is_refused(
    services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = services
    assert await old.take()
    new.can_prepare = False
    monkeypatch.setattr(standby, "_LEFTOVERS_S", 0.1)
    with pytest.raises(HomeError, match="on the same Ray cluster: a service that stands by needs a cluster of its own"):
        await new.take()


async def test_one_whose_gateway_is_gone_ends(services: list[Service], monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = services
    assert await old.take()
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert not await new.take()
