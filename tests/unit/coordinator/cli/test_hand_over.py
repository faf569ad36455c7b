"""Waiting for a hand-over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.cli.commands import hand_over
from coordinator.documents import FileDocuments
from coordinator.fleet.services.handover import MemberState, give_order, ordered, tell_draining, tell_member
from podium.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_later_order_ends_the_wait_though_the_service_still_serves(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    tell_draining(documents, "old")
    give_order(documents, "new")

    def order_back(_stage: str) -> None:
        tell_draining(documents, "old", ended=True)
        tell_member(documents, "new", MemberState.SERVING, "0.1.0")
        give_order(documents, "old")

    with pytest.raises(HomeError, match="old is ordered"):
        hand_over._wait(documents, "new", 60, order_back)


def test_an_order_that_is_repeated_does_not_follow_a_later_one(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    give_order(documents, "new", "upgrade")
    given = documents.read("hand-over.json")
    give_order(documents, "new", "upgrade")
    assert documents.read("hand-over.json") == given
    for order_id in ("rollback", ""):
        give_order(documents, "old", order_id)
        with pytest.raises(
            HomeError, match="old is ordered to serve the home, later than new was by the order upgrade"
        ):
            give_order(documents, "new", "upgrade")
        assert ordered(documents) == "old"
    give_order(documents, "new", "upgrade again")
    assert ordered(documents) == "new"
