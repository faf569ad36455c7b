"""The plan for codes whose agents share hosts."""

from __future__ import annotations

from dataclasses import replace

from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Assign, Code, EndHost, Placement, StartHost
from coordinator.fleet.plan import MAX_ACTIVATING, Observed, plan
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")
STAMPS = {HELLO: "1"}
SHARED = frozenset({HELLO})


def agents(count: int) -> tuple[tuple[Address, Code], ...]:
    return tuple((Address("hello", str(number)), HELLO) for number in range(count))


def host(host_id: str, agents: int = 0, activating: int = 0, stamp: str = "1") -> Host:
    placements = {address: Placement(host_id, address) for address in (Address("there", str(n)) for n in range(agents))}
    return Host(host_id, HELLO, stamp, HostStatus.WARM, None, "shared", placements=placements, activating=activating)


def starting(host_id: str) -> Host:
    return Host(host_id, HELLO, "1", HostStatus.STARTING)


def test_all_wanted_agents_get_the_host_that_has_room() -> None:
    wanted = agents(3)
    actions = plan(Observed((host("h1", 7),), wanted, STAMPS, SHARED), 1, 9, 10)
    assert actions == [Assign("h1", address) for address, _ in wanted]


def test_agents_beyond_the_limit_of_a_host_get_the_next_one() -> None:
    wanted = agents(5)
    observed = Observed((host("h1", 8), starting("h2")), wanted, STAMPS, SHARED)
    assert plan(observed, 1, 9, 10) == [Assign("h1", address) for address, _ in wanted[:2]]
    observed = Observed((host("h1", 10),), agents(25), STAMPS, SHARED)
    assert plan(observed, 1, 9, 10) == [StartHost(HELLO, "1")] * 3


def test_only_so_many_agents_are_activated_at_a_time() -> None:
    wanted = agents(5)
    observed = Observed((host("h1", 100, MAX_ACTIVATING - 2),), wanted, STAMPS, SHARED)
    assert plan(observed, 1, 9, 5000) == [Assign("h1", address) for address, _ in wanted[:2]], "the others wait"


def test_one_host_with_room_is_the_reserve() -> None:
    assert plan(Observed((), (), STAMPS, SHARED), 3, 9, 10) == [StartHost(HELLO, "1")]
    assert plan(Observed((host("h1", 9),), (), STAMPS, SHARED), 3, 9, 10) == []
    assert plan(Observed((host("h1", 10),), (), STAMPS, SHARED), 1, 9, 10) == [StartHost(HELLO, "1")]
    assert plan(Observed((host("h1"), host("h2")), (), STAMPS, SHARED), 1, 9, 10) == [EndHost("h1")]
    assert plan(Observed((host("h1"), host("h2", 1)), (), STAMPS, SHARED), 1, 9, 10) == [EndHost("h1")]
    assert plan(Observed((host("h1"),), (), STAMPS, SHARED), 0, 9, 10) == [EndHost("h1")]


def test_a_host_with_edited_code_gets_no_agents_and_ends_with_its_last_one() -> None:
    wanted = agents(1)
    observed = Observed((host("h1", 3, stamp="0"), host("h2")), wanted, STAMPS, SHARED)
    assert plan(observed, 1, 9, 10) == [Assign("h2", wanted[0][0])]
    assert plan(Observed((host("h1", stamp="0"), host("h2", 1)), (), STAMPS, SHARED), 1, 9, 10) == [EndHost("h1")]


def test_a_host_that_is_short_of_memory_gets_no_agents_and_ends_with_its_last_one() -> None:
    draining, empty = host("h1", 3), host("h2")
    draining.drain()
    empty.drain()
    assert plan(Observed((draining, empty), agents(1), STAMPS, SHARED), 0, 9, 10) == [
        EndHost("h2"),
        StartHost(HELLO, "1"),
    ]


def test_a_quarantined_agent_gets_a_process_of_its_own() -> None:
    wanted = agents(2)
    alone = frozenset({wanted[0][0]})
    observed = Observed((host("h1", 1),), wanted, STAMPS, SHARED, alone=alone)
    assert plan(observed, 1, 9, 10) == [Assign("h1", wanted[1][0]), StartHost(HELLO, "1", "process")]
    own = Host("h2", HELLO, "1", HostStatus.WARM, isolation="process")
    observed = Observed((host("h1", 1), own), wanted, STAMPS, SHARED, alone=alone)
    assert plan(observed, 1, 9, 10) == [Assign("h2", wanted[0][0]), Assign("h1", wanted[1][0])]
    assert plan(Observed((host("h1", 1), own), (), STAMPS, SHARED), 1, 9, 10) == [EndHost("h2")]


def test_one_host_tells_whether_a_code_is_shared() -> None:
    unknown = frozenset({HELLO})
    assert plan(Observed((), agents(5), STAMPS, unknown=unknown), 1, 9, 10) == [StartHost(HELLO, "1")]
    assert plan(Observed((starting("h1"),), agents(5), STAMPS, unknown=unknown), 1, 9, 10) == []
    assert len(plan(Observed((), agents(5), STAMPS), 0, 9, 10)) == 5, "it is known to be not shared"


def test_an_ending_host_gets_no_agents() -> None:
    ending = replace(host("h1", 1), status=HostStatus.ENDING)
    assert plan(Observed((ending,), agents(1), STAMPS, SHARED), 0, 9, 10) == [StartHost(HELLO, "1")]


def test_suspects_get_hosts_of_their_groups_which_end_when_they_are_empty() -> None:
    wanted = agents(3)
    groups = {wanted[0][0]: 1, wanted[1][0]: 1, wanted[2][0]: 2}
    observed = Observed((host("h1", 1),), wanted, STAMPS, SHARED, groups=groups)
    assert plan(observed, 1, 9, 10) == [StartHost(HELLO, "1", None, 1), StartHost(HELLO, "1", None, 2)]
    of_group = replace(host("h2"), group=1)
    observed = replace(observed, hosts=(host("h1", 1), of_group, replace(starting("h3"), group=2)))
    assert plan(observed, 1, 9, 10) == [Assign("h2", wanted[0][0]), Assign("h2", wanted[1][0])]
    observed = replace(observed, hosts=(host("h1", 1), of_group), wanted=agents(1), groups={})
    assert plan(observed, None, 9, 10) == [Assign("h1", wanted[0][0]), EndHost("h2")]
