"""What the metrics say of the hosts."""

from __future__ import annotations

from coordinator.fleet.gauges import gauges_of
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.host_table import HostTable
from coordinator.fleet.model import Code
from coordinator.fleet.nodes.nodes import LOCAL_NODE, NodeId
from coordinator.telemetry.recorder import Series, Value
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")


def test_hosts_are_counted_by_status_and_agents_by_type_and_tenant() -> None:
    hosts = HostTable()
    for number in range(5):
        hosts.add(Host(f"host_{number}", HELLO, "stamp", HostStatus.WARM))
    for number, address in enumerate((Address("hello", "a"), Address("hello", "b", "acme"), Address("hello", "c"))):
        hosts.assign(f"host_{number + 1}", address)
        hosts[f"host_{number + 1}"].activated(address, 1, 0)
    waking = Address("hello", "waking")
    counts: dict[tuple[str, str], int] = {("local", "warm"): 1, ("local", "assigned"): 3, ("n2", "assigned"): 1}
    hosts.assign("host_4", waking)
    hosts["host_4"].node = NodeId("n2")
    expected: dict[Series, Value] = {
        ("podium_hosts", ("starting",)): 0,
        ("podium_hosts", ("warm",)): 1,
        ("podium_hosts", ("assigned",)): 4,
        ("podium_hosts", ("draining",)): 0,
        ("podium_hosts", ("lost",)): 0,
        ("podium_hosts", ("ending",)): 0,
        ("podium_agents_awake", ("hello", "default")): 2,
        ("podium_agents_awake", ("hello", "acme")): 1,
        ("podium_wakes_waiting", ()): 1,
        **{("podium_node_agents", (node,)): count for node, count in {"local": 3, "n2": 1, "n3": 0}.items()},
        **{
            ("podium_node_hosts", (node, status)): counts.get((node, status), 0)
            for node in ("local", "n2", "n3")
            for status in ("starting", "warm", "assigned")
        },
    }
    assert gauges_of(hosts, 1, [LOCAL_NODE, NodeId("n2"), NodeId("n3")]) == expected
