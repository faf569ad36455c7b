"""What the coordinator tells of agents that are awake."""

from __future__ import annotations

from coordinator.fleet.facts import awake_facts
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.host_table import HostTable
from coordinator.fleet.model import Code, Loaded
from podium.address import Address

ALICE, BOB, CAROL, DORA = (Address("hello", key, "acme") for key in ("alice", "bob", "carol", "dora"))


def test_agents_of_a_shared_host_have_a_share_of_its_memory() -> None:
    table = HostTable()
    table.add(Host("h1", None, "", HostStatus.WARM))
    table.add(Host("h2", None, "", HostStatus.WARM, isolation="shared"))
    table.assign("h1", ALICE)
    for address in (BOB, CAROL):
        table.assign("h2", address)
    code = Code("/hello.py", "Hello", "hello")
    table["h1"].loaded = Loaded(code, (), "", sandbox="bubblewrap")
    assert awake_facts(table, {"h1": 500, "h2": 300}, [ALICE, BOB, DORA]) == {
        "acme:hello/alice": {"isolation": "process", "sandbox": "bubblewrap", "memory": 500},
        "acme:hello/bob": {"isolation": "shared", "sandbox": None, "memory": 150},
    }
    assert awake_facts(table, {}, [CAROL]) == {
        "acme:hello/carol": {"isolation": "shared", "sandbox": None, "memory": None}
    }
    assert awake_facts(table, {}, []) == {}
