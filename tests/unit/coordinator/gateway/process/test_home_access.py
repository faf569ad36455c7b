"""The keys of a home as a gateway opens them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import InvalidInput
from coordinator.access.caller import ANYONE, Scope, UnknownKey
from coordinator.access.local_key import read_local_key
from coordinator.gateway.process.home_access import HomeAccess
from coordinator.home import Home
from coordinator.homes.sqlite.keys import SqliteKeyRecords

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


async def test_the_first_start_makes_a_local_key(home: Home) -> None:
    async with HomeAccess(home, ManualClock(), no_auth=False, loopback=True) as opened:
        assert read_local_key(home.path) is None, "a start that is refused has made none"
        opened.make_local_key()
        text = opened.new_local_key
        assert text == read_local_key(home.path)
        caller = await opened.access.authenticate(f"Bearer {text}")
        assert caller.is_operator
        assert opened.administration is not None
    assert stat.S_IMODE((home.path / "access.db").stat().st_mode) == 0o600
    async with HomeAccess(home, ManualClock(), no_auth=False, loopback=True) as again:
        again.make_local_key()
        assert again.new_local_key is None
        with pytest.raises(UnknownKey):
            await again.access.authenticate("Bearer secret")


async def test_without_keys_everyone_may_do_everything_on_loopback_only(home: Home) -> None:
    async with HomeAccess(home, ManualClock(), no_auth=True, loopback=True) as opened:
        opened.make_local_key()
        assert await opened.access.authenticate(None) == ANYONE
        assert opened.administration is None
    assert not (home.path / "access.db").exists()
    with pytest.raises(InvalidInput, match="--no-auth is for loopback only"):
        HomeAccess(home, ManualClock(), no_auth=True, loopback=False)


async def test_other_machines_need_a_key_that_somebody_made(home: Home) -> None:
    async with HomeAccess(home, ManualClock(), no_auth=False, loopback=True) as local:
        local.make_local_key()
    with pytest.raises(InvalidInput, match="podium keys create NAME"):
        HomeAccess(home, ManualClock(), no_auth=False, loopback=False)
    keys = SqliteKeyRecords(home.path, home.id)
    keys.create("ci", "default", [Scope.READ], 1)
    keys.close()
    async with HomeAccess(home, ManualClock(), no_auth=False, loopback=False) as opened:
        assert opened.administration is not None


async def test_no_local_key_where_there_is_to_be_none(home: Home) -> None:
    async with HomeAccess(home, ManualClock(), no_auth=False, loopback=True, local_key=False) as opened:
        opened.make_local_key()
        assert opened.keys is not None
        assert opened.new_local_key is None
        assert list(opened.keys.listed()) == []
    assert not (home.path / "local.key").exists()
