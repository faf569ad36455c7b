"""The placement plan: given what is wanted and what is there, the actions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Assign, Code, EndHost, Refuse, StartHost
from coordinator.fleet.nodes.nodes import CPU, LOCAL_NODE, Needs, Node, NodeId
from coordinator.fleet.plan import Observed, plan
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")
OTHER = Code("/agents/other.py", "Other", "other")
STAMPS = {HELLO: "1", OTHER: "1"}
ALICE = Address("hello", "alice")
BOB = Address("hello", "bob")


def warm(host_id: str, code: Code = HELLO, stamp: str = "1") -> Host:
    return Host(host_id, code, stamp, HostStatus.WARM)


def starting(host_id: str, code: Code = HELLO, stamp: str = "1") -> Host:
    return Host(host_id, code, stamp, HostStatus.STARTING)


def test_nothing_to_do_when_the_reserve_is_there() -> None:
    assert plan(Observed((warm("h1"),), (), {HELLO: "1"}), warm_reserve=1, most_starting=9) == []


def test_a_known_code_gets_its_reserve() -> None:
    assert plan(Observed((), (), {HELLO: "1"}), warm_reserve=1, most_starting=9) == [StartHost(HELLO, "1")]


def test_a_wanted_agent_gets_a_warm_host_before_the_reserve_is_made_good() -> None:
    observed = Observed((warm("h1"),), ((ALICE, HELLO),), {HELLO: "1"})
    assert plan(observed, warm_reserve=1, most_starting=9) == [Assign("h1", ALICE)]
    assigned = replace(warm("h1"), status=HostStatus.ASSIGNED)
    assert plan(Observed((assigned,), (), {HELLO: "1"}), warm_reserve=1, most_starting=9) == [StartHost(HELLO, "1")]


def test_the_reserve_is_left_as_it_is_while_agents_wake() -> None:
    observed = Observed((warm("h1", OTHER), warm("h2", OTHER)), ((ALICE, HELLO),), {HELLO: "1", OTHER: "1"})
    assert plan(observed, warm_reserve=None, most_starting=9) == [StartHost(HELLO, "1")]


def test_hosts_on_their_way_count() -> None:
    observed = Observed((starting("h1"), starting("h2")), ((ALICE, HELLO),), {HELLO: "1"})
    assert plan(observed, warm_reserve=1, most_starting=9) == []


def test_first_come_first_served() -> None:
    observed = Observed((warm("h1"),), ((BOB, HELLO), (ALICE, HELLO)), {HELLO: "1"})
    assert plan(observed, warm_reserve=0, most_starting=9) == [Assign("h1", BOB), StartHost(HELLO, "1")]


def test_a_host_of_another_code_is_not_taken() -> None:
    observed = Observed((warm("h1", OTHER),), ((ALICE, HELLO),), {HELLO: "1", OTHER: "1"})
    assert plan(observed, warm_reserve=0, most_starting=9) == [EndHost("h1"), StartHost(HELLO, "1")]


def test_a_warm_host_with_edited_code_is_retired_and_replaced() -> None:
    observed = Observed((warm("h1", stamp="0"),), ((ALICE, HELLO),), {HELLO: "1"})
    assert plan(observed, warm_reserve=0, most_starting=9) == [EndHost("h1"), StartHost(HELLO, "1")]


def test_a_starting_host_with_edited_code_does_not_count() -> None:
    observed = Observed((starting("h1", stamp="0"),), ((ALICE, HELLO),), {HELLO: "1"})
    assert plan(observed, warm_reserve=0, most_starting=9) == [StartHost(HELLO, "1")]


def test_too_many_warm_hosts_are_retired() -> None:
    assert plan(Observed((warm("h1"), warm("h2"), warm("h3")), (), {HELLO: "1"}), warm_reserve=1, most_starting=9) == [
        EndHost("h1"),
        EndHost("h2"),
    ]


def test_only_so_many_start_at_a_time_those_for_agents_first() -> None:
    wanted = ((BOB, OTHER), (ALICE, HELLO), (Address("hello", "eve"), HELLO))
    assert plan(Observed((), wanted, STAMPS), warm_reserve=1, most_starting=2) == [
        StartHost(OTHER, "1"),
        StartHost(HELLO, "1"),
    ]
    observed = Observed((starting("h1"), starting("h2", OTHER)), wanted, STAMPS)
    assert plan(observed, warm_reserve=1, most_starting=2) == []
    assert plan(observed, warm_reserve=1, most_starting=3) == [StartHost(HELLO, "1")]


CODES = [Code(f"/agents/{number:02}.py", "Agent", f"type{number}") for number in range(20)]


def test_of_many_classes_those_used_last_have_warm_hosts() -> None:
    stamps = dict.fromkeys(CODES, "1")
    latest = (CODES[7], CODES[3], *(code for code in CODES if code not in (CODES[7], CODES[3])))
    expected = [CODES[7], CODES[3], *CODES[:3], CODES[4]]
    observed = Observed((), (), stamps, latest=latest)
    assert plan(observed, warm_reserve=1, most_starting=99, most_warm=6) == [StartHost(code, "1") for code in expected]
    there = tuple(warm(code.agent_type, code) for code in expected)
    assert plan(replace(observed, hosts=there), warm_reserve=1, most_starting=99, most_warm=6) == []

    another = (CODES[19], *(code for code in latest if code != CODES[19]))
    actions = plan(replace(observed, hosts=there, latest=another), warm_reserve=1, most_starting=99, most_warm=6)
    assert sorted(map(str, actions)) == sorted(map(str, [StartHost(CODES[19], "1"), EndHost("type4")]))
    assert plan(observed, warm_reserve=1, most_starting=99, most_warm=0) == []
    two_each = plan(observed, warm_reserve=4, most_starting=99, most_warm=6)
    assert two_each == [StartHost(CODES[7], "1")] * 4 + [StartHost(CODES[3], "1")] * 2


def test_agents_of_classes_without_a_warm_host_are_served() -> None:
    wanted = tuple((Address(code.agent_type, "a"), code) for code in CODES)
    observed = Observed((), wanted, dict.fromkeys(CODES, "1"))
    actions = plan(observed, warm_reserve=1, most_starting=99, most_warm=2)
    assert actions[:20] == [StartHost(code, "1") for code in CODES]


def test_a_starting_host_with_edited_code_takes_its_time_too() -> None:
    observed = Observed((starting("h1", stamp="0"),), ((ALICE, HELLO),), {HELLO: "1"})
    assert plan(observed, warm_reserve=0, most_starting=1) == []


GPU = Needs((("GPU", 1.0),))
HALF = Needs(((CPU, 0.5),), (("zone", "a"),))


def test_a_host_starts_where_the_labels_and_the_resources_of_its_class_are() -> None:
    nodes = (Node(NodeId("a"), {CPU: 4}), Node(NodeId("b"), {CPU: 1}, {"zone": "a"}), Node(NodeId("c"), {CPU: 0.4}))
    observed = Observed((), ((ALICE, HELLO), (BOB, HELLO)), STAMPS, nodes=nodes, needs={HELLO: HALF})
    both = [StartHost(HELLO, "1", node=NodeId("b"), needs=HALF)] * 2
    assert plan(observed, warm_reserve=None, most_starting=9) == both
    taken = [
        replace(warm(f"h{number}"), status=status, node=NodeId("b"), needs=HALF)
        for number, status in enumerate((HostStatus.ASSIGNED, HostStatus.ENDING))
    ]
    observed = replace(observed, hosts=(taken[0],))
    assert plan(observed, warm_reserve=None, most_starting=9) == both[:1]
    assert plan(replace(observed, hosts=tuple(taken)), warm_reserve=None, most_starting=9) == []


def test_ten_hosts_of_a_tenth_fill_a_node() -> None:
    tenth = Needs(((CPU, 0.1),))
    there = tuple(replace(warm(f"h{number}"), status=HostStatus.ASSIGNED, needs=tenth) for number in range(9))
    observed = Observed(there, ((ALICE, HELLO), (BOB, HELLO)), STAMPS, nodes=(Node(LOCAL_NODE, {CPU: 1}),))
    assert len(plan(replace(observed, needs={HELLO: tenth}), warm_reserve=None, most_starting=9)) == 1


def test_a_class_that_no_node_can_run_is_refused_and_says_what_is_lacking() -> None:
    nodes = (Node(NodeId("a"), {CPU: 4}), Node(NodeId("b"), {CPU: 1, "GPU": 1.0}, {"zone": "b"}))
    needs = Needs((("GPU", 1.0),), (("zone", "a"),))
    observed = Observed((), ((ALICE, HELLO),), {HELLO: "1"}, nodes=nodes, needs={HELLO: needs})
    refused = Refuse(HELLO, "a lacks GPU 1, zone=a; b lacks zone=a")
    assert plan(observed, warm_reserve=None, most_starting=9) == [refused]
    assert plan(replace(observed, needs={HELLO: GPU}), warm_reserve=None, most_starting=9) == [
        StartHost(HELLO, "1", node=NodeId("b"), needs=GPU)
    ]
    assert plan(replace(observed, wanted=()), warm_reserve=1, most_starting=9) == [], "for a reserve nothing is said"


def test_warm_hosts_without_agents_make_room_and_are_not_started_again() -> None:
    all_of_it = Needs(((CPU, 1.0),))
    idle = replace(warm("h1", OTHER), needs=(share := Needs(((CPU, 0.1),))))
    nodes = (Node(LOCAL_NODE, {CPU: 1}),)
    observed = Observed((idle,), ((ALICE, HELLO),), STAMPS, nodes=nodes, needs={HELLO: all_of_it, OTHER: share})
    assert plan(observed, warm_reserve=1, most_starting=9) == [EndHost("h1")]
    ending = replace(observed, hosts=(replace(idle, status=HostStatus.ENDING),))
    assert plan(ending, warm_reserve=1, most_starting=9) == []
    started = plan(replace(observed, hosts=()), warm_reserve=1, most_starting=9)
    assert started == [StartHost(HELLO, "1", needs=all_of_it)]


def test_a_class_with_needs_of_its_own_has_no_reserve() -> None:
    observed = Observed((), (), {HELLO: "1"}, needs={HELLO: GPU}, scarce=frozenset({HELLO}))
    assert plan(observed, warm_reserve=1, most_starting=9) == []
    there = replace(warm("h1"), needs=GPU)
    assert plan(replace(observed, hosts=(there,)), warm_reserve=1, most_starting=9) == [EndHost("h1")]


def test_a_host_that_was_started_before_the_needs_of_its_class_were_known_is_retired() -> None:
    nodes = (Node(LOCAL_NODE, {CPU: 1, "GPU": 1.0}),)
    observed = Observed((warm("h1"),), ((ALICE, HELLO),), {HELLO: "1"}, nodes=nodes, needs={HELLO: GPU})
    assert plan(observed, warm_reserve=None, most_starting=9) == [EndHost("h1"), StartHost(HELLO, "1", needs=GPU)]


hosts = st.builds(
    Host,
    st.uuids().map(str),
    st.sampled_from([HELLO, OTHER]),
    st.sampled_from(["0", "1"]),
    st.sampled_from([HostStatus.STARTING, HostStatus.WARM]),
)
agents = st.lists(st.sampled_from([ALICE, BOB, Address("hello", "eve")]), unique=True)


@given(st.lists(hosts, max_size=8), agents, st.integers(0, 3), st.integers(1, 4))
def test_carrying_the_plan_out_ends_in_peace(there: list[Host], wanted: list[Address], reserve: int, most: int) -> None:
    """Whatever is there, acting on the plan again and again serves every agent once and then changes nothing."""
    pool = {host.host_id: host for host in there}
    waiting = [(address, HELLO) for address in wanted]
    served: list[Address] = []
    for step in range(20):
        actions = plan(Observed(tuple(pool.values()), tuple(waiting), STAMPS), reserve, most)
        for number, action in enumerate(actions):
            match action:
                case StartHost(code, stamp):
                    pool[f"new-{step}-{number}"] = Host(f"new-{step}-{number}", code, stamp, HostStatus.STARTING)
                case Assign(host_id, address):
                    assert pool[host_id].status is HostStatus.WARM
                    assert pool[host_id].code_stamp == "1"
                    pool[host_id] = Host(host_id, HELLO, "1", HostStatus.ASSIGNED)
                    waiting.remove((address, HELLO))
                    served.append(address)
                case EndHost(host_id):
                    assert pool.pop(host_id).status is HostStatus.WARM
        on_their_way = [host for host in pool.values() if host.status is HostStatus.STARTING]
        assert len(on_their_way) <= max(most, sum(host.status is HostStatus.STARTING for host in there))
        settled = not actions and not any(host.status is HostStatus.STARTING for host in pool.values())
        if settled:
            break
        pool = {
            host_id: Host(host_id, host.code, host.code_stamp, HostStatus.WARM)
            if host.status is HostStatus.STARTING
            else host
            for host_id, host in pool.items()
        }
    else:
        raise AssertionError("the plan never comes to rest")
    assert sorted(served) == sorted(wanted)
    for code in (HELLO, OTHER):
        assert sum(host.code == code and host.status is HostStatus.WARM for host in pool.values()) == reserve
