"""The states of a host, the table of hosts and routes, and the registry of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.fleet import host_table
from coordinator.fleet.code.code_registry import CodeRegistry
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.host_table import HostTable
from coordinator.fleet.model import Code, Loaded, Placement, Route
from coordinator.fleet.nodes.nodes import NodeId
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

    from podium.agent.base import Isolation

HELLO = Code("/agents/hello.py", "Hello", "hello")
LOADED = Loaded(HELLO, (HELLO.file,), "1")
ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


def test_there_is_a_route_from_activation_to_removal() -> None:
    table = HostTable()
    table.add(Host("h1", HELLO, "1", HostStatus.STARTING))
    table["h1"].loads(LOADED)
    table.assign("h1", ALICE)
    assert table.placement(ALICE) == Placement("h1", ALICE)
    assert table.route(ALICE) is None, "it still activates the agent"
    table["h1"].activated(ALICE, 3, 7)
    assert table.route(ALICE) == Route("h1", 3, 7, LOADED)
    assert table.remove(table["h1"]) == [Placement("h1", ALICE, None, 3, 7)]
    assert (table.route(ALICE), table.host_of(ALICE), "h1" in table) == (None, None, False)


def test_a_host_that_ends_takes_no_other_way() -> None:
    host = Host("h1", HELLO, "1")
    host.status = HostStatus.ENDING
    host.loads(LOADED)
    host.drain()
    host.lose()
    assert host.status is HostStatus.ENDING
    host.activates(ALICE, "{}")
    host.activated(ALICE, 1, 0)
    assert (host.agents, host.lost.is_set()) == (0, False)


def test_a_host_whose_process_has_ended_gets_ready_no_more() -> None:
    host = Host("h1", HELLO, "1")
    host.lose()
    host.loads(LOADED)
    host.drain()
    assert (host.status, host.lost.is_set()) == (HostStatus.LOST, True)


@pytest.mark.parametrize(("isolation", "before"), [("process", HostStatus.ASSIGNED), ("shared", HostStatus.WARM)])
def test_a_host_that_drains_keeps_its_agents_until_they_leave(isolation: Isolation, before: HostStatus) -> None:
    host = Host("h1", HELLO, "1", HostStatus.WARM, LOADED, isolation)
    placement = Placement("h1", ALICE)
    host.place(placement)
    assert (host.status, host.phase, host.activating) == (before, HostStatus.ASSIGNED, 1)
    host.drain()
    assert (host.status, host.phase) == (HostStatus.DRAINING, HostStatus.ASSIGNED)
    assert not placement.left.is_set()
    assert host.leave(ALICE) == placement
    assert (host.phase, host.activating, placement.left.is_set()) == (HostStatus.DRAINING, 0, True)
    assert host.leave(ALICE) is None


def test_a_host_may_have_several_agents() -> None:
    table = HostTable()
    table.add(Host("h1", HELLO, "1", HostStatus.WARM, LOADED))
    for number, address in enumerate((ALICE, BOB)):
        table.assign("h1", address)
        table["h1"].activates(address, "{}")
        table["h1"].activated(address, 1, number)
    assert table.route(ALICE) == Route("h1", 1, 0, LOADED, "{}")
    assert table.route(BOB) == Route("h1", 1, 1, LOADED, "{}")
    assert list(table["h1"].placements) == [ALICE, BOB]
    assert [placement.address for placement in table.remove(table["h1"])] == [ALICE, BOB]
    assert list(table.placements()) == []


def test_an_agent_that_has_another_host_is_not_changed_by_its_last_one() -> None:
    table = HostTable()
    for host_id in ("h1", "h2"):
        table.add(Host(host_id, HELLO, "1", HostStatus.WARM, LOADED))
    table.assign("h2", ALICE)
    table["h1"].activates(ALICE, "{}")
    table["h1"].activated(ALICE, 1, 0)
    assert table.placement(ALICE) == Placement("h2", ALICE)


def test_a_death_is_told_until_another_host_has_activated_the_agent() -> None:
    table = HostTable()
    table.note_death(ALICE, "killed")
    assert table.death_of(ALICE) == "killed"
    table.note_death(ALICE, None)
    assert table.death_of(ALICE) is None


def test_of_many_deaths_the_latest_are_kept() -> None:
    table = HostTable()
    table.note_death(ALICE, "killed")
    for number in range(1000):
        table.note_death(Address("hello", str(number)), "killed")
    assert (table.death_of(ALICE), table.death_of(Address("hello", "0"))) == (None, "killed")


def test_the_files_of_a_code_are_learned_unless_they_changed_meanwhile(tmp_path: Path) -> None:
    agent, helper = tmp_path / "agent.py", tmp_path / "helper.py"
    agent.write_text("import helper")
    helper.write_text("1")
    code = Code(str(agent), "Hello", "hello")
    codes = CodeRegistry()
    assert codes.register(code)
    assert not codes.register(code)
    stamp = codes.stamp_of(code)
    loaded = Loaded(code, (str(agent), str(helper)), "")
    learned = codes.learn_sources(loaded, stamp)
    assert learned is not None
    assert codes.current_stamps([HELLO]).keys() == {code, HELLO}
    helper.write_text("another")
    assert codes.stamp_of(code) != learned, "a module of the agent counts"
    assert codes.learn_sources(loaded, learned) is None
    codes.drop(code, "it raised")
    assert codes.get("hello") is None
    assert codes.problems == {"hello": "it raised"}
    assert codes.to_try_again(1e9) == [], "it raises again, however long one waits"
    agent.write_text("import helper  # edited")
    assert codes.to_try_again(0) == [code]
    assert codes.register(code)
    assert (codes.to_try_again(1e9), codes.problems) == ([], {"hello": "it raised"})
    codes.loads(Loaded(code, (), ""))
    assert codes.problems == {}


def test_a_code_whose_hosts_died_is_tried_again_after_delays_that_grow(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("")
    code, codes, now_s, delays = Code(str(agent), "Hello", "hello"), CodeRegistry(), 100.0, []
    for _ in range(6):
        codes.register(code)
        codes.drop(code, "its process died", now_s)
        assert codes.to_try_again(now_s) == []
        delay = next(each for each in range(1000) if codes.to_try_again(now_s + each))
        delays.append(delay)
        now_s += delay
    assert delays == [15, 30, 60, 120, 300, 300]
    codes.register(code)
    assert codes.to_try_again(now_s) == [], "it is being tried"
    codes.loads(Loaded(code, (), ""))
    codes.drop(code, "its process died", now_s)
    assert codes.to_try_again(now_s + 15) == [code]


def test_the_last_nodes_of_the_latest_agents_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_table, "_MAX_PLACES", 2)
    table, eve = HostTable(), Address("hello", "eve")
    for number, (address, node) in enumerate(((ALICE, "a"), (BOB, "a"), (ALICE, "b"), (eve, "c"))):
        host = table.add(Host(f"h{number}", HELLO, "1", HostStatus.WARM, node=NodeId(node)))
        table.assign(host.host_id, address)
        table.remove(host)
    assert [table.last_node_of(address) for address in (ALICE, BOB, eve)] == ["b", None, "c"]
    assert table.without_last_node((ALICE, BOB, eve)) == [BOB]
    table.note_last_node(BOB, None)
    assert table.without_last_node((ALICE, BOB)) == [ALICE], "one that has no node is not looked for again"
