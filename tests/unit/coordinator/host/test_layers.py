"""What a node says that it has of agents' workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.host.node.layers import latest_epochs

if TYPE_CHECKING:
    from pathlib import Path


def test_the_highest_epoch_of_each_workspace_is_found(tmp_path: Path) -> None:
    for name in ("alice/2", "alice/11", "alice/lock", "bob", "eve/1"):
        (tmp_path / name).mkdir(parents=True)
    assert latest_epochs(tmp_path, ["alice", "bob", "carol"]) == {"alice": 11}
