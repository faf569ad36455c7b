"""What Ray's autoscaler is told: what has no room."""

from __future__ import annotations

import pytest

from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Code
from coordinator.fleet.nodes.demand import MAX_LACKING, demand_of
from coordinator.fleet.nodes.nodes import CPU, Needs, Node, NodeId
from coordinator.fleet.plan import Observed, plan
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")
A, B = NodeId("a"), NodeId("b")
HALF = Needs(((CPU, 0.5),), (("zone", "x"),))
PLAIN = Needs(((CPU, 0.5),))


def demand(
    nodes: tuple[Node, ...], agents: int, hosts: tuple[Host, ...] = (), needs: Needs = PLAIN, *, shared: bool = False
) -> tuple[Needs, ...]:
    fleet = Observed(
        hosts,
        nodes=nodes,
        wanted=tuple((Address("hello", str(number)), HELLO) for number in range(agents)),
        code_stamps={HELLO: "1"},
        needs={HELLO: needs},
        shared=frozenset({HELLO} if shared else ()),
    )
    return demand_of(fleet, plan(fleet, 0, None, 10), 10)


def busy(host_id: str, node: NodeId, status: HostStatus = HostStatus.ASSIGNED) -> Host:
    return Host(host_id, HELLO, "1", status, node=node, needs=PLAIN)


def test_nothing_is_asked_for_while_a_node_has_room() -> None:
    assert demand((Node(A, {CPU: 1.0}),), 1) == ()
    assert demand((Node(A, {CPU: 1.0}),), 0, (busy("h1", A),)) == ()
    assert demand((Node(A, {CPU: 64.0}, cores=1),), 20) == (), "they wait for others to start, not for room"


def test_what_has_no_room_is_asked_for() -> None:
    assert demand((), 2) == (PLAIN, PLAIN)
    assert demand((Node(A, {}),), 1) == (PLAIN,), "a head without CPUs"
    full = tuple(busy(f"h{number}", A) for number in range(2))
    assert demand((Node(A, {CPU: 1.0}),), 1, full) == (PLAIN,)
    started = demand((Node(A, {CPU: 1.0}), Node(B, {CPU: 0.5})), 3, full)
    assert started == (PLAIN, PLAIN), "one starts on b"


def test_labels_and_drained_nodes_count() -> None:
    assert demand((Node(A, {CPU: 8.0}),), 1, needs=HALF) == (HALF,)
    assert demand((Node(A, {CPU: 8.0}, {"zone": "x"}),), 1, needs=HALF) == ()
    assert demand((Node(A, {CPU: 8.0}, is_drained=True),), 1) == (PLAIN,)


@pytest.mark.parametrize(("agents", "shared", "hosts"), [(25, True, 3), (1000, False, MAX_LACKING)])
def test_the_hosts_that_are_asked_for_are_those_that_are_missing(agents: int, shared: bool, hosts: int) -> None:
    assert demand((), agents, shared=shared) == (PLAIN,) * hosts
    coming = (busy("h1", A, HostStatus.STARTING),)
    assert len(demand((Node(A, {CPU: 0.5}),), 25, coming, shared=True)) == 2


def test_a_class_that_no_node_can_have_does_not_keep_others_from_being_asked_for() -> None:
    other, large = Code("/agents/large.py", "Large", "large"), Needs((("unobtainium", 1.0),))
    wanted = [(Address("large", str(number)), other) for number in range(2 * MAX_LACKING)]
    fleet = Observed(
        (),
        nodes=(),
        wanted=(*wanted, (Address("hello", "a"), HELLO)),
        code_stamps={HELLO: "1", other: "1"},
        needs={HELLO: PLAIN, other: large},
    )
    asked = demand_of(fleet, plan(fleet, 0, None, 10), 10)
    assert len(asked) == MAX_LACKING
    assert PLAIN in asked
