"""The drained nodes of a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import StorageRefused, Unavailable
from coordinator.documents import DRAINED, FileDocuments
from coordinator.fleet.nodes.drains import Drains
from coordinator.fleet.nodes.nodes import NodeId

if TYPE_CHECKING:
    from pathlib import Path

A, B = NodeId("a"), NodeId("b")


def test_drained_nodes_are_kept_until_they_are_used_again(tmp_path: Path) -> None:
    drains = Drains(FileDocuments(tmp_path))
    for node in (B, A, A):
        drains.add(node)
    assert list(Drains(FileDocuments(tmp_path))) == [A, B]
    drains.remove(B)
    after = Drains(FileDocuments(tmp_path))
    assert (A in after, B in after) == (True, False)


def test_what_cannot_be_recorded_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = FileDocuments(tmp_path)
    drains = Drains(documents)

    def refuse(_name: str, _data: bytes) -> None:
        raise StorageRefused("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(documents, "write", refuse)
        with pytest.raises(StorageRefused):
            drains.add(A)
    assert list(drains) == []


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 9, "nodes": []}', b'{"format": 1, "nodes": 3}'])
def test_an_unreadable_document_counts_as_empty(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    FileDocuments(tmp_path).write(DRAINED, data)
    assert list(Drains(FileDocuments(tmp_path))) == []
    assert "drained_nodes_not_read" in caplog.text


def test_a_document_that_cannot_be_reached_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    documents = FileDocuments(tmp_path)
    Drains(documents).add(A)

    def away(_name: str) -> bytes | None:
        raise Unavailable("the database is away")

    drains = Drains(documents)
    with monkeypatch.context() as patch:
        patch.setattr(documents, "read", away)
        assert list(drains) == []
        with pytest.raises(Unavailable):
            drains.add(B)
    assert "drained_nodes_not_read" in caplog.text
    drains.add(B)
    assert list(drains) == list(Drains(documents)) == [A, B]
