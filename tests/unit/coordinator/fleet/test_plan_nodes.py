"""The plan over several nodes: where agents go, what each node keeps, and how a drained node becomes empty."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Assign, Code, EndHost, Placement, Refuse, StartHost, Vacate
from coordinator.fleet.nodes.nodes import CPU, Needs, Node, NodeId
from coordinator.fleet.plan import Observed, plan
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")
OTHER = Code("/agents/other.py", "Other", "other")
STAMPS = {HELLO: "1"}
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NODES = Node(A, cores=2), Node(B, cores=2), Node(C, cores=2)
ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


def agents(count: int) -> list[Address]:
    return [Address("hello", str(number)) for number in range(count)]


def host(host_id: str, node: NodeId, *placed: Address, shared: bool = False, **fields: Any) -> Host:
    placements = {address: Placement(host_id, address, epoch=1) for address in placed}
    status = HostStatus.ASSIGNED if placed and not shared else HostStatus.WARM
    made = Host(host_id, HELLO, "1", status, node=node, isolation="shared" if shared else None, placements=placements)
    return replace(made, **fields)


def observed(hosts: tuple[Host, ...] = (), *wanted: Address, **fields: Any) -> Observed:
    given_nodes = fields.pop("nodes", NODES)
    return Observed(hosts, tuple((address, HELLO) for address in wanted), STAMPS, nodes=given_nodes, **fields)


def started(actions: list[Any]) -> list[NodeId]:
    return [action.node for action in actions if isinstance(action, StartHost)]


def drained(node: NodeId) -> tuple[Node, ...]:
    return tuple(replace(each, is_drained=each.node_id == node) for each in NODES)


# -- where agents go --------------------------------------------------------------------------------------------------


def test_an_agent_gets_the_ready_host_of_the_node_that_had_it_last() -> None:
    ready = tuple(host(f"on-{node}", node) for node in (A, B, C))
    assert plan(observed(ready, ALICE, last_nodes={ALICE: C}), None, None) == [Assign("on-c", ALICE)]
    assert plan(observed(ready, ALICE), None, None) == [Assign("on-a", ALICE)]


def test_a_ready_host_elsewhere_comes_before_a_start_on_the_node_that_had_it_last() -> None:
    assert plan(observed((host("on-a", A),), ALICE, last_nodes={ALICE: C}), None, None) == [Assign("on-a", ALICE)]


def test_without_a_ready_host_one_starts_on_the_node_that_had_the_agent_last() -> None:
    busy = tuple(host(f"h{number}", C, address) for number, address in enumerate(agents(5)))
    assert started(plan(observed(busy, ALICE, last_nodes={ALICE: C}), None, None)) == [C]
    assert started(plan(observed(busy, ALICE, last_nodes={ALICE: NodeId("gone")}), None, None)) == [A]


def test_agents_without_a_place_go_where_the_load_is_least() -> None:
    there = (host("h1", A, *agents(3), shared=True), host("h2", B, *agents(1), shared=True), host("h3", C, shared=True))
    wanted = [Address("hello", f"w{number}") for number in range(7)]
    shared = frozenset({HELLO})
    actions = plan(observed(there, *wanted, shared=shared), None, None, most_agents=10)
    counts = Counter(action.host_id for action in actions if isinstance(action, Assign))
    assert counts == {"h1": 1, "h2": 3, "h3": 3}, "eleven are four, four and three"


def test_a_larger_node_gets_more() -> None:
    nodes = Node(A, {CPU: 1}), Node(B, {CPU: 3})
    actions = plan(observed((), *agents(8), nodes=nodes), None, 9)
    assert Counter(started(actions)) == {A: 2, B: 6}


def test_labels_and_resources_come_before_warmth() -> None:
    nodes = Node(A, {CPU: 1}), Node(B, {CPU: 1, "GPU": 1.0})
    needs = {HELLO: Needs((("GPU", 1.0),))}
    assert started(plan(observed((), ALICE, nodes=nodes, needs=needs, last_nodes={ALICE: A}), None, 9)) == [B]


def test_of_hosts_on_their_way_an_agent_waits_for_the_one_on_its_node() -> None:
    coming = tuple(host(f"on-{node}", node, status=HostStatus.STARTING) for node in (A, B))
    fleet = observed(coming, ALICE, last_nodes={ALICE: B})
    assert started(plan(fleet, 1, 9)) == [B, C], "the reserve of b goes to the agent"


# -- starts and reserves ----------------------------------------------------------------------------------------------


def test_each_node_starts_as_many_hosts_as_it_has_cores() -> None:
    nodes = Node(A, cores=1), Node(B, cores=4)
    assert Counter(started(plan(observed((), *agents(20), nodes=nodes), None, None))) == {A: 2, B: 4}
    assert Counter(started(plan(observed((), *agents(20), nodes=nodes), None, 3))) == {A: 3, B: 3}
    coming = tuple(host(f"h{number}", A, status=HostStatus.STARTING) for number in range(2))
    assert started(
        plan(observed(coming, *agents(3), nodes=nodes, last_nodes=dict.fromkeys(agents(3), A)), 0, None)
    ) == [B], "the two that start are for the first two, and the third does not wait for a core of its node"


def test_each_node_has_the_reserve() -> None:
    assert started(plan(observed(), 1, None)) == [A, B, C]
    there = host("h1", A), host("h2", A), host("h3", B)
    actions = plan(observed(there), 1, None)
    assert actions == [EndHost("h1"), StartHost(HELLO, "1", node=C)]
    codes = {Code(f"/agents/{number}.py", "Agent", f"type{number}"): "1" for number in range(4)}
    limited = plan(Observed((), (), codes, nodes=NODES[:2]), 1, 9, most_warm=3)
    assert Counter(started(limited)) == {A: 3, B: 3}


def test_each_node_has_a_shared_host_with_room() -> None:
    full, roomy = host("h1", A, *agents(10), shared=True), host("h2", B, ALICE, shared=True)
    assert started(plan(observed((full, roomy), shared=frozenset({HELLO})), 1, None, most_agents=10)) == [A, C]


def test_a_node_without_room_has_no_reserve() -> None:
    nodes = Node(A, {CPU: 0}), Node(B, {CPU: 1})
    assert started(plan(observed((), nodes=nodes, needs={HELLO: Needs(((CPU, 0.1),))}), 1, None)) == [B]


# -- drained nodes ----------------------------------------------------------------------------------------------------


def test_agents_of_a_drained_node_are_told_once_to_end_after_their_turns() -> None:
    there = host("h1", A, ALICE), host("h2", B, BOB)
    assert plan(observed(there, nodes=drained(A)), None, None) == [Vacate("h1", (ALICE,))]
    there[0].vacates((ALICE,))
    assert there[0].status is HostStatus.DRAINING
    assert plan(observed(there, nodes=drained(A)), None, None) == []


def test_agents_of_a_drained_node_that_ends_are_told_once_in_which_time() -> None:
    there = host("h1", A, ALICE)
    there.vacates((ALICE,))
    ends = tuple(replace(each, end_timeout_s=20.0 if each.node_id == A else None) for each in drained(A))
    assert plan(observed((there,), nodes=ends), None, None) == [Vacate("h1", (ALICE,), 20.0)]
    there.vacates((ALICE,), 20.0)
    assert plan(observed((there,), nodes=ends), None, None) == []


def test_an_agent_that_is_being_activated_on_a_drained_node_is_told_when_it_is() -> None:
    there = host("h1", A, ALICE, shared=True)
    there.placements[BOB] = Placement("h1", BOB)
    assert plan(observed((there,), nodes=drained(A)), None, None) == [Vacate("h1", (ALICE,))]
    there.vacates((ALICE,))
    there.activated(BOB, 2, 0)
    assert plan(observed((there,), nodes=drained(A)), None, None) == [Vacate("h1", (BOB,))]


def test_no_agent_gets_a_host_of_a_drained_node_and_its_warm_hosts_end() -> None:
    there = host("h1", A), host("h2", A, status=HostStatus.STARTING)
    actions = plan(observed(there, ALICE, nodes=drained(A), last_nodes={ALICE: A}), 1, None)
    assert actions == [EndHost("h1"), *(StartHost(HELLO, "1", node=node) for node in (B, B, C))]


def test_a_class_for_which_only_a_drained_node_has_room_is_refused() -> None:
    nodes = Node(A, {CPU: 1, "GPU": 1.0}, is_drained=True), Node(B, {CPU: 1})
    needs = {HELLO: Needs((("GPU", 1.0),))}
    actions = plan(observed((), ALICE, nodes=nodes, needs=needs), None, None)
    assert actions == [Refuse(HELLO, "a is drained; b lacks GPU 1")]
    assert plan(observed((), ALICE, nodes=()), None, None) == [Refuse(HELLO, "there is none")]


def test_a_node_that_lacks_what_a_bundle_requires_is_not_chosen() -> None:
    lacks = {HELLO: {A: "httpx>=9 (has httpx 0.28)", B: "podium 9.9 (has podium 0.1.0)"}}
    assert started(plan(observed((), *agents(3), unfit=lacks, last_nodes={agents(1)[0]: A}), 2, None)) == [C, C]
    everywhere = {HELLO: {**lacks[HELLO], C: "httpx>=9 (has no httpx)"}}
    refused = Refuse(
        HELLO,
        "a lacks httpx>=9 (has httpx 0.28); b lacks podium 9.9 (has podium 0.1.0); c lacks httpx>=9 (has no httpx)",
    )
    assert plan(observed((), ALICE, unfit=everywhere), 1, None) == [refused]
    needs = {HELLO: Needs((("GPU", 1.0),))}
    assert plan(observed((), ALICE, unfit=lacks, needs=needs), None, None) == [
        Refuse(
            HELLO,
            "a lacks GPU 1, httpx>=9 (has httpx 0.28); b lacks GPU 1, podium 9.9 (has podium 0.1.0); c lacks GPU 1",
        )
    ]


def test_a_node_of_which_it_is_not_known_what_it_lacks_is_waited_for() -> None:
    warm = host("warm", A, code=OTHER)
    stamps = {HELLO: "1", OTHER: "1"}
    asked: dict[Code, dict[NodeId, str | None]] = {HELLO: {A: "x", B: None, C: "x"}}
    fleet = replace(observed((warm,), ALICE, unfit=asked), code_stamps=stamps)
    assert plan(fleet, 1, 1) == [StartHost(OTHER, "1", node=node) for node in (B, C)], "nobody has to make room for it"
    assert started(plan(observed((), ALICE, unfit={HELLO: {A: None, B: None}}), None, None)) == [C]


# -- any course of events ---------------------------------------------------------------------------------------------


class World:
    """A fleet that does what plans say, in which nodes die, come back and are drained."""

    def __init__(self, most_agents: int) -> None:
        self.hosts: dict[str, Host] = {}
        self.nodes = {node.node_id: replace(node, resources={CPU: 4.0}) for node in NODES}
        self.wanted: dict[Address, Code] = {}
        self.last: dict[Address, NodeId] = {}
        self.made = 0
        self.most_agents = most_agents
        self.shared = frozenset({OTHER}) if most_agents > 1 else frozenset[Code]()

    def step(self, reserve: int | None, most: int | None, ready: int | None = None) -> bool:
        """Act on one plan, then let starts, activations and ends happen; return whether anything did.

        Args:
            ready: how many starts end, the earliest; all by default.
        """
        tenth = Needs(((CPU, 0.1),))
        fleet = Observed(
            tuple(self.hosts.values()),
            tuple(self.wanted.items()),
            dict.fromkeys((HELLO, OTHER), "1"),
            self.shared,
            nodes=tuple(self.nodes.values()),
            needs={HELLO: tenth, OTHER: tenth},
            last_nodes=self.last,
        )
        actions = plan(fleet, reserve, most, self.most_agents, 6)
        for action in actions:
            self._act(action)
        starting = Counter(host.node for host in self.hosts.values() if host.status is HostStatus.STARTING)
        for node, count in starting.items():
            assert count <= (most or max(2, self.nodes[node].cores))
        return self._settle(ready) or bool(actions)

    def _act(self, action: Any) -> None:
        match action:
            case StartHost(code, stamp, _, _, node, needs):
                assert not self.nodes[node].is_drained
                self.made += 1
                made = Host(f"h{self.made}", code, stamp, node=node, needs=needs)
                self.hosts[made.host_id] = made
            case Assign(host_id, address):
                assigned = self.hosts[host_id]
                assert not self.nodes[assigned.node].is_drained
                assert self.wanted.pop(address) == assigned.code
                assert assigned.status is HostStatus.WARM
                assert assigned.agents < (self.most_agents if assigned.is_shared else 1)
                assigned.place(Placement(host_id, address))
            case EndHost(host_id):
                assert not self.hosts.pop(host_id).agents
            case Vacate(host_id, moved, timeout_s):
                assert self.nodes[self.hosts[host_id].node].is_drained
                self.hosts[host_id].vacates(moved, timeout_s)
            case Refuse():
                assert all(node.is_drained for node in self.nodes.values())

    def _settle(self, ready: int | None) -> bool:
        moved = False
        starting = [host for host in self.hosts.values() if host.status is HostStatus.STARTING][:ready]
        for host in list(self.hosts.values()):
            if host in starting:
                host.status, moved = HostStatus.WARM, True
                host.isolation = "shared" if host.code in self.shared else "process"
            for address, placement in list(host.placements.items()):
                if placement.epoch is None:
                    host.activated(address, 1, 0)
                    self.last[address], moved = host.node, True
                elif placement.is_moving:  # its turn has ended, and it has another message
                    host.leave(address)
                    assert host.code is not None
                    self.wanted[address], moved = host.code, True
                    if not host.is_shared:
                        del self.hosts[host.host_id]
        return moved

    def die(self, node: NodeId) -> None:
        """Lose a node with all that it has; its agents have messages."""
        self.nodes.pop(node, None)
        for host in [each for each in self.hosts.values() if each.node == node]:
            assert host.code is not None
            self.wanted |= dict.fromkeys(host.placements, host.code)
            del self.hosts[host.host_id]

    def join(self, node: NodeId) -> None:
        """Have a node, not drained."""
        self.nodes[node] = Node(node, {CPU: 4.0}, cores=2)

    def drain(self, node: NodeId) -> None:
        """Drain a node, if it is there."""
        if node in self.nodes:
            self.nodes[node] = replace(self.nodes[node], is_drained=True)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["die", "join", "drain", "want", "step"]), st.sampled_from([A, B, C]), st.integers(0, 5)),
    max_size=25,
)


@given(EVENTS, st.sampled_from([None, 0, 1]), st.sampled_from([None, 1, 3]), st.sampled_from([1, 4]))
def test_whatever_happens_to_nodes_every_agent_gets_one_host_of_a_living_node(
    events: list[tuple[str, NodeId, int]], reserve: int | None, most: int | None, most_agents: int
) -> None:
    world, known = World(most_agents), set[Address]()
    for event, node, number in events:
        if event == "step":
            world.step(reserve, most)
        elif event == "want":
            code = (HELLO, OTHER)[number % 2]
            address = Address(code.agent_type, str(number))
            if address not in known:
                known.add(address)
                world.wanted[address] = code
        else:
            getattr(world, event)(node)
    if all(node.is_drained for node in world.nodes.values()):
        world.join(A)
    for _ in range(60):
        if not world.step(reserve, most):
            break
    else:
        raise AssertionError("the plan never comes to rest")
    placed = Counter(address for host in world.hosts.values() for address in host.placements)
    assert placed == Counter(known)
    for host in world.hosts.values():
        assert not world.nodes[host.node].is_drained


@settings(max_examples=20)
@given(st.integers(1, 100), st.integers(1, 5))
def test_agents_are_spread_evenly_over_equal_nodes(count: int, most: int) -> None:
    world = World(1)
    world.nodes = {node.node_id: replace(node, resources={CPU: 40.0}) for node in NODES}
    world.wanted = dict.fromkeys(agents(count), HELLO)
    while world.step(None, most):
        pass
    spread = Counter(host.node for host in world.hosts.values())
    assert sum(spread.values()) == count
    assert max(spread.values()) - min(spread[node] for node in (A, B, C)) <= 1


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([2, 10]), st.sampled_from([0.05, 0.5, 1]))
def test_agents_that_share_hosts_are_spread_evenly_however_long_starts_take(
    seed: int, at_a_time: int, most_agents: int, ready: float
) -> None:
    world, random = World(most_agents), Random(seed)
    world.nodes = {node.node_id: replace(node, resources={CPU: 40.0}) for node in NODES}
    world.hosts["alone"] = host("alone", B, ALICE)
    to_wake = [Address("other", str(number)) for number in range(30 * most_agents)]
    while to_wake or world.wanted:
        world.wanted |= {to_wake.pop(): OTHER for _ in range(min(len(to_wake), at_a_time - len(world.wanted)))}
        world.step(None, None, sum(random.random() < ready for _ in range(6)))
    spread = Counter(dict.fromkeys(world.nodes, 0))
    for each in world.hosts.values():
        spread[each.node] += each.agents
    assert sum(spread.values()) == 30 * most_agents + 1
    assert max(spread.values()) - min(spread.values()) <= most_agents
