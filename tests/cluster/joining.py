"""``python -m tests.cluster.joining WHAT ADDRESS``: joins a Ray cluster, in a process that has known no other token.

Ray keeps the token that it has read first, or that there was none.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.util.placement_group import placement_group_table

from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from coordinator.fleet.nodes.nodes import CPU, Needs
from coordinator.ray.cluster import (
    COORDINATOR_NAME,
    disconnect,
    end_actors,
    find_actor,
    has_actors,
    join,
    living_nodes,
    on_node,
)
from coordinator.ray.node_requests import NodeRequests
from tests.waiting import wait_until


@ray.remote(num_cpus=0, max_restarts=-1)
class Left:
    """An actor that a service has left."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def leave(name: str, ray_id: str) -> None:
    placed: Any = Left.options(name=name, lifetime="detached", scheduling_strategy=on_node(ray_id))  # type: ignore[attr-defined]
    assert ray.get(placed.remote().node.remote()) == ray_id


def end_what_was_left(address: str) -> None:
    for namespace in ("podium-other", "podium-mine"):
        join(address, namespace)
        nodes = {node.name: node.ray_id for node in living_nodes()}
        assert nodes.keys() == {"n1", "n2"}
        leave(COORDINATOR_NAME, nodes["n1"])
        leave("host_1", nodes["n2"])
        disconnect()  # as a service does that is killed
    join(address, "podium-mine")
    assert has_actors()
    end_actors()
    assert not has_actors()
    assert find_actor(COORDINATOR_NAME) is find_actor("host_1") is None
    left: Any = ray.get_actor("host_1", namespace="podium-other")
    assert ray.get(left.node.remote())
    disconnect()


def join_another_version(address: str) -> None:
    join(address, "podium-mine")
    disconnect()
    store: Any = GcsClient(address=address)
    before = store.internal_kv_get(CLUSTER_METADATA_KEY, namespace=KV_NAMESPACE_CLUSTER)
    other = json.dumps({**json.loads(before), "ray_version": "2.99.0"}).encode()
    store.internal_kv_put(CLUSTER_METADATA_KEY, other, overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    said = ""
    try:
        join(address, "podium-mine")
    except Unavailable as error:
        said = str(error)
    finally:
        store.internal_kv_put(CLUSTER_METADATA_KEY, before, overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    python = json.loads(before)["python_version"]
    assert said == (
        f"the Ray cluster at {address} has Ray 2.99.0 with Python {python}, and podium here has Ray "
        f"{ray.__version__} with Python {python}: start both with the same versions"
    )
    join(address, "podium-mine")
    disconnect()


def groups() -> list[tuple[str, float]]:
    """The state of each placement group, and what it asks for: CPUs, or what no node has."""
    table = placement_group_table().values()
    return sorted((each["state"], sum(each["bundles"][0].values())) for each in table if each["state"] != "REMOVED")


def ask_for_nodes(address: str) -> None:
    join(address, "podium-mine")
    clock = ManualClock()
    requests, room, labelled = NodeRequests(clock), Needs(((CPU, 2.0),)), Needs(((CPU, 1.0),), (("zone", "x"),))
    nowhere = [labelled, Needs((("unobtainium", 1.0),))]
    waiting, placed = [("PENDING", 1.0), ("PENDING", 1.0)], ("CREATED", 2.0)
    requests.ask([*nowhere, room, room, room])
    wait_until(lambda: groups() == [placed, placed, *waiting, ("PENDING", 2.0)], "two are placed, on a node each")
    requests.ask([*nowhere, room, room])
    wait_until(lambda: groups() == [placed, placed, *waiting], "one of the hosts has got a node")

    def once_again() -> bool:
        clock.advance(16.0)
        requests.ask([*nowhere, room, room])
        return groups() == waiting

    wait_until(once_again, "the room of those that are placed is not left to hosts")
    requests.ask([*nowhere, room, room])
    wait_until(lambda: groups() == [placed, placed, *waiting], "those that have got none are not asked for again")

    NodeRequests(clock).ask([room])  # of a coordinator that was started again
    wait_until(lambda: groups() == [placed], "those of the one before are left")
    disconnect()
    join(address, "podium-mine")
    wait_until(lambda: groups() == [], "those of a service that has ended are left")
    disconnect()


if __name__ == "__main__":
    checks = {"left": end_what_was_left, "version": join_another_version, "nodes": ask_for_nodes}
    checks[sys.argv[1]](sys.argv[2])
