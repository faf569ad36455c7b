"""Comparison of two agents, each at a turn: of one agent, of an agent and its fork, or of any two.

Read-only; works while the agents run. Unchanged files are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.workspace.trees.tree import EMPTY
from chronicle.workspace.trees.tree_diff import changes
from podium.agent_record import read_agent
from podium.history.transcript import transcript_events, visible_transcript
from podium.state import diff

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.records import Event
    from chronicle.workspace.trees.tree_diff import Change
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.history.transcript import Transcript

__all__ = ["Comparison", "common_seq", "compare", "lineage"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two agents at a turn, and the changes from one to the other."""

    before: AgentRecord
    after: AgentRecord
    patch: list[JsonObject]
    """RFC 6902, from the state before to the state after."""
    files: list[Change]
    """By path."""
    common_seq: int
    """The ``seq`` of the last common event; 0 if there is none."""
    removed: list[Event]
    """Visible messages, replies and artifacts that only ``before`` has, in order."""
    added: list[Event]
    """Those that only ``after`` has."""


def compare(
    store: JournalStore, blobs: BlobReader, before: tuple[Address, int | None], after: tuple[Address, int | None]
) -> Comparison:
    """Compare two agents, each given by its address and a turn, ``None`` for the last one.

    Raises:
        UnknownAgent: one of the agents does not exist or never started.
        UnknownMoment: one has not committed that turn.
    """
    old, new = read_agent(store, blobs, *before), read_agent(store, blobs, *after)
    trees = [record.tree.tree_id if record.tree is not None else EMPTY for record in (old, new)]
    common = common_seq(store, (old.head.branch_id, old.version_seq), (new.head.branch_id, new.version_seq))
    transcripts = [
        visible_transcript(store, blobs, record.address, record.head, record.version_seq) for record in (old, new)
    ]
    return Comparison(
        before=old,
        after=new,
        patch=diff(old.state, new.state),
        files=changes(blobs, *trees),
        common_seq=common,
        removed=_only_in(store, old, transcripts[0], transcripts[1].up_to(common)),
        added=_only_in(store, new, transcripts[1], transcripts[0].up_to(common)),
    )


def common_seq(store: JournalStore, one: tuple[BranchId, int], other: tuple[BranchId, int]) -> int:
    """Return the seq of the last common event of two branches, each up to a seq; 0 if there is none."""
    common = 0
    for (branch_id, end), (other_id, other_end) in zip(lineage(store, *one), lineage(store, *other), strict=False):
        if branch_id != other_id:
            break
        common = min(end, other_end)
        if end != other_end:
            break
    return common


def lineage(store: BranchRecords, branch_id: BranchId, seq: int) -> list[tuple[BranchId, int]]:
    """Return the branches that own the events of a branch up to a seq, oldest first, each with its last seq."""
    lineage = []
    following: BranchId | None = branch_id
    while following is not None:
        branch = store.branch(following)
        following = branch.parent_branch_id if branch.parent_seq and not branch.folded_seq else None
        if seq > branch.parent_seq:
            lineage.append((branch.branch_id, seq))
            seq = branch.parent_seq
    return lineage[::-1]


def _only_in(store: JournalStore, record: AgentRecord, transcript: Transcript, other: Transcript) -> list[Event]:
    return list(transcript_events(store, record.head.branch_id, transcript.minus(other)))
