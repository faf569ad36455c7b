"""A service knows the classes of the home's current deploy instead of those that are registered."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import NotFound
from chronicle.ids import BlobId
from coordinator.fleet.code.code_registry import CodeRegistry
from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.deaths.quarantine import Quarantine
from coordinator.fleet.model import Code, Loaded
from coordinator.homes.opening import open_records
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.service.client import ServiceRefused
from podium.address import Address
from podium.code.deploys import make_deploy
from podium.code.packing import pack
from tests.unit.coordinator.service.served import AGENT, HELLO, Agents, client_of, serving

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from coordinator.home import Home

HANDLERS: JsonObject = {"greet": {"input": {"type": "object"}, "result": None}}
INTERFACE: JsonObject = {"handlers": HANDLERS, "on_message": True}


def deployed(home: Home, directory: Path, content: str) -> BlobId:
    """Deploy an agent of this content; return the bundle."""
    file = directory / "hello.py"
    file.write_text(content)
    classes = [RegisteredAgent("hello", "hello.py", "Hello", {"of": content}, interface=INTERFACE).to_wire()]
    with closing(home.journal()) as store, closing(home.blobs()) as blobs:
        bundle = pack(blobs, directory, [file], classes).bundle
        make_deploy(store, blobs, bundle, "x", 5)
    return bundle


def code_of(bundle: str) -> Code:
    """The code of a deploy."""
    return Code("hello.py", "Hello", "hello", bundle)


async def test_the_current_deploy_is_known_instead_of_what_is_registered(home: Home, tmp_path: Path) -> None:
    home.create()
    first, agents = deployed(home, tmp_path, "first"), Agents()
    async with serving(home, agents), client_of(home) as client:
        assert [each.registry for each in agents.told] == [
            Registry(
                [RegisteredAgent("hello", "hello.py", "Hello", {"of": "first"}, bundle=first, interface=INTERFACE)]
            )
        ], "before anybody asks"
        await client.register(HELLO, follow_edits=True)
        await client.admit("hello/a", {})
        assert agents.prepared == [code_of(first)]
        (found,) = (await client.status())["registry"]
        assert (found["file"], found["bundle"]) == ("hello.py", first)

        second = deployed(home, tmp_path, "second")
        await client.admit("hello/a", {})
        assert agents.prepared == [code_of(first)] * 2, "the service has not been told"
        assert (await client.redeploy(), agents.reloads) == (["hello/awake"], 1)
        await client.admit("hello/a", {})
        assert agents.prepared[2:] == [code_of(second)]

        with closing(home.journal()) as store, closing(home.blobs()) as blobs:
            make_deploy(store, blobs, None, "x", 5)
        assert (await client.types())[0]["handlers"] == HANDLERS
        await client.redeploy()
        assert (await client.types())[0]["handlers"] == {}, "the registered class has none"
        await client.admit("hello/a", {})
        assert agents.prepared[3:] == [Code(AGENT.file, AGENT.class_name, "hello")]
        assert (await client.status())["registry"][0]["bundle"] is None


async def test_a_deploy_that_cannot_be_read_changes_nothing_and_starts_no_service(home: Home, tmp_path: Path) -> None:
    home.create()
    first, agents = deployed(home, tmp_path, "first"), Agents()
    async with serving(home, agents), client_of(home) as client:
        with closing(home.journal()) as store, closing(home.blobs()) as blobs:
            make_deploy(store, blobs, BlobId("0" * 64), "x", 5)
        with pytest.raises(ServiceRefused, match="0000"):
            await client.redeploy()
        assert (await client.status())["registry"][0]["bundle"] == first
    with pytest.raises(NotFound, match="0000"):
        async with serving(home, Agents()):
            pass


def test_a_bundle_never_changes_whatever_files_have_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hello.py"
    file.write_text("first")
    codes, code = CodeRegistry(), code_of("1" * 64)
    stamp = codes.stamp_of(code)
    file.write_text("second")
    assert codes.stamp_of(code) == stamp
    loaded = Loaded(code, (), stamp)
    assert codes.learn_sources(loaded, stamp) == stamp
    assert loaded.is_of(code, CodeStamps())
    assert not loaded.is_of(code_of("2" * 64), CodeStamps())


def test_the_problem_of_an_earlier_deploy_is_over_with_the_next() -> None:
    codes = CodeRegistry()
    codes.register(code_of("1" * 64))
    codes.drop(code_of("1" * 64), "it is for podium 9.9")
    assert codes.problems == {"hello": "it is for podium 9.9"}
    codes.register(code_of("2" * 64))
    assert (codes.problems, codes.to_try_again(1e9)) == ({}, [])


def test_an_agent_is_quarantined_for_the_bundle_that_blocked(home: Home) -> None:
    home.create()
    documents, address = open_records(home).documents(), Address("hello", "a")
    loaded = Loaded(code_of("1" * 64), (), CodeStamps().of(()), "shared")
    Quarantine(documents).add(address, loaded, "it blocked")
    again = Quarantine(documents)
    assert again.holds(address, code_of("1" * 64), CodeStamps())
    assert not again.holds(address, code_of("2" * 64), CodeStamps())
