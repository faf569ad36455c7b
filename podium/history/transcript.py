"""The visible transcript of an agent: the events that a context is rebuilt from, and that front ends show.

A rewind that restores the transcript continues that of an earlier turn. The events between the two stay in the journal
and are hidden: they are not part of the transcript any more, unless a later rewind returns to a turn among them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from chronicle.journal.payloads import payload_of
from podium.agent_record import turn_end_seq
from podium.errors import UnknownMoment
from podium.events import AGENT_REWOUND, TRANSCRIPT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Event, Head
    from podium.address import Address
    from podium.events import AgentRewound

__all__ = ["Transcript", "transcript_events", "visible_transcript"]


@dataclass(frozen=True, slots=True)
class Transcript:
    """The visible events of a branch, up to a seq, as ranges of seqs."""

    ranges: tuple[tuple[int, int], ...]
    """First and last seq of each range, ascending; ranges do not overlap."""

    def has(self, seq: int) -> bool:
        """Whether the event with a seq is visible."""
        at = bisect_left(self.ranges, seq, key=lambda found: found[1])
        return at < len(self.ranges) and self.ranges[at][0] <= seq

    def up_to(self, seq: int) -> Transcript:
        """Return the part up to a seq."""
        return Transcript(tuple((first, min(last, seq)) for first, last in self.ranges if first <= seq))

    def minus(self, other: Transcript) -> Transcript:
        """Return the part that another transcript does not have."""
        left: list[tuple[int, int]] = []
        for first, last in self.ranges:
            at = first
            for start, end in other.ranges:
                if end < at or start > last:
                    continue
                if start > at:
                    left.append((at, start - 1))
                at = end + 1
            if at <= last:
                left.append((at, last))
        return Transcript(tuple(left))


def visible_transcript(
    store: JournalStore, blobs: BlobReader, address: Address, head: Head, to_seq: int | None = None
) -> Transcript:
    """Return the visible transcript of an agent; reads its rewinds and, for each that counts, the place of its turn.

    Args:
        head: of the agent's branch.
        to_seq: the end of a turn, at which the agent is looked at; the head if ``None``.
    """
    end = head.seq if to_seq is None else to_seq
    moves = [
        (event.seq, event.turn, turn)
        for event in store.events(head.branch_id, to_seq=end, types=(AGENT_REWOUND,))
        if (turn := _continued(event, blobs)) != event.turn - 1
    ]
    ranges: list[tuple[int, int]] = []
    while moves and end:
        seq, _, turn = moves.pop()
        if seq > end:
            continue
        ranges.append((seq, end))
        try:
            end = turn_end_seq(store, address, head, turn)
        except UnknownMoment:  # its history was dropped
            end = 0
    if end:
        ranges.append((1, end))
    return Transcript(tuple(reversed(ranges)))


def transcript_events(store: EventRecords, branch_id: BranchId, transcript: Transcript) -> Iterator[Event]:
    """Yield the messages, replies, results and artifacts of a transcript, in order."""
    for first, last in transcript.ranges:
        yield from store.events(branch_id, first - 1, last, TRANSCRIPT_EVENTS)


def _continued(event: Event, blobs: BlobReader) -> int:
    return cast("AgentRewound", payload_of(event, blobs))["transcript"]
