"""The third pass of a seal: the histories of paths that have new versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.workspace.history.commit_builder import CommitBuilder
    from chronicle.workspace.history.view import HistoryView
    from chronicle.workspace.layer.sealing.contents import StoredContents
    from chronicle.workspace.layer.state.pending_history import PendingHistory

__all__ = ["put_histories"]


def put_histories(builder: CommitBuilder, view: HistoryView, pending: PendingHistory, stored: StoredContents) -> None:
    """Give the new versions their numbers and contents, and add them to the commit.

    Args:
        view: the histories of the last seal, with the pending versions.
        stored: the contents that the first pass has put.
    """
    # Where a floor is stored, what is derived is stored before it, or it would be numbered after it from then on.
    for path in dict.fromkeys([*pending.records, *pending.floors]):
        finalised = [
            record.finalised(number, record.content if record.held is None else stored[record.held])
            for number, record in view.numbered(path)
        ]
        own = {record.seq for record in pending.records.get(path, ())}
        builder.add_versions(path, finalised, floor=pending.floors.get(path, 0), logged=own)
