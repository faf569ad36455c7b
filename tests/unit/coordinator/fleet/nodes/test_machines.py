"""What is told of further machines, and which classes their nodes take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import UnsupportedFormat
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.documents import FileDocuments
from coordinator.door import Door
from coordinator.fleet.model import Code
from coordinator.fleet.nodes.machines import Machine, publish_machine, published_machine, withdraw_machine
from coordinator.fleet.nodes.nodes import Node, NodeId
from coordinator.fleet.state import FleetState
from coordinator.store.links import StoreAccess

if TYPE_CHECKING:
    from pathlib import Path

HERE, THERE = Node(NodeId("a")), Node(NodeId("b"), machine="gpu-7")
FILE, DEPLOYED = Code("/x.py", "X", "x"), Code("x.py", "X", "x", "bundle")


def test_a_machine_is_read_as_it_was_told_of_until_it_is_withdrawn(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    assert published_machine(documents, "gpu-7") is None
    paths: dict[str, Any] = dict.fromkeys(("home", "home_identity", "run_dir", "models", "logs", "workspaces"), "/x")
    door, store = Door("10.0.0.2", 1, "secret", "fingerprint"), StoreAccess("/x/store.sock", "secret")
    told = Machine("gpu-7", "1", door, store, **paths, presentation="auto", fuse_transport="raw", end_timeout_s=20.0)
    publish_machine(documents, told)
    assert published_machine(documents, "gpu-7") == told
    assert published_machine(documents, "gpu-8") is None
    documents.write("machine-gpu-7.json", b'{"podium": "0.0.1", "hostname": "gpu-7"}')
    with pytest.raises(UnsupportedFormat, match="podium node on gpu-7 is of Podium 0.0.1, and this is"):
        published_machine(documents, "gpu-7")
    withdraw_machine(documents, "gpu-7")
    assert published_machine(documents, "gpu-7") is None


def test_a_class_in_files_runs_on_the_machine_of_the_service_only() -> None:
    state = FleetState(MemoryJournalStore(), ManualClock(), IdSource())
    state.nodes = [HERE, THERE]
    lacks = "the files of the service's machine (podium deploy)"
    assert state._unfit([FILE, DEPLOYED]) == {FILE: {"b": lacks}, DEPLOYED: {"a": None, "b": None}}
    state.nodes = [THERE]
    assert state.lacking(FILE) == f"b lacks {lacks}"
    assert state.lacking(DEPLOYED) is None
    state.nodes = [HERE]
    assert state._unfit([FILE]) == {}
