"""Joining a real Ray cluster: what is refused, and what an earlier service has left there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import ray
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
from ray._raylet import GcsClient  # type: ignore[attr-defined]

from chronicle.errors import Unavailable
from coordinator.ray.cluster import COORDINATOR_NAME, disconnect, find_actor, join, living_nodes, on_node
from tests.ray_cluster import RayCluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@ray.remote(num_cpus=0, max_restarts=-1)
class Left:
    """An actor that a service has left."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with running_cluster("n1", "n2") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    yield
    disconnect()


def leave(name: str, ray_id: str) -> None:
    placed: Any = Left.options(name=name, lifetime="detached", scheduling_strategy=on_node(ray_id))  # type: ignore[attr-defined]
    assert ray.get(placed.remote().node.remote()) == ray_id


def test_what_an_earlier_service_of_the_home_has_left_is_ended_and_nothing_of_other_homes(cluster: RayCluster) -> None:
    for namespace in ("podium-other", "podium-mine"):
        join(cluster.address, namespace)
        nodes = {node.name: node.ray_id for node in living_nodes()}
        assert nodes.keys() == {"n1", "n2"}
        leave(COORDINATOR_NAME, nodes["n1"])
        leave("host_1", nodes["n2"])
        disconnect()  # as a service does that is killed
    join(cluster.address, "podium-mine")
    assert find_actor(COORDINATOR_NAME) is find_actor("host_1") is None
    left: Any = ray.get_actor("host_1", namespace="podium-other")
    assert ray.get(left.node.remote())


def test_a_cluster_of_another_version_is_refused_with_both_versions(cluster: RayCluster) -> None:
    store: Any = GcsClient(address=cluster.address)
    before = store.internal_kv_get(CLUSTER_METADATA_KEY, namespace=KV_NAMESPACE_CLUSTER)
    other = json.dumps({**json.loads(before), "ray_version": "2.99.0"}).encode()
    store.internal_kv_put(CLUSTER_METADATA_KEY, other, overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    try:
        with pytest.raises(Unavailable) as caught:
            join(cluster.address, "podium-mine")
    finally:
        store.internal_kv_put(CLUSTER_METADATA_KEY, before, overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    python = json.loads(before)["python_version"]
    assert str(caught.value) == (
        f"the Ray cluster at {cluster.address} has Ray 2.99.0 with Python {python}, and podium here has Ray "
        f"{ray.__version__} with Python {python}: start both with the same versions"
    )
    join(cluster.address, "podium-mine")
