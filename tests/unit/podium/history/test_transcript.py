"""The visible transcript as ranges of seqs, and what rewinds of older releases mean for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.history.transcript import Transcript

sets_of_seqs = st.sets(st.integers(1, 30))


def transcript_of(seqs: set[int]) -> Transcript:
    """Return the transcript that has just these seqs."""
    ranges: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return Transcript(tuple(ranges))


def seqs_of(transcript: Transcript) -> set[int]:
    return {seq for first, last in transcript.ranges for seq in range(first, last + 1)}


@given(one=sets_of_seqs, other=sets_of_seqs, to=st.integers(0, 31))
def test_transcripts_are_sets_of_seqs(one: set[int], other: set[int], to: int) -> None:
    transcript = transcript_of(one)
    assert {seq for seq in range(32) if transcript.has(seq)} == one
    assert seqs_of(transcript.minus(transcript_of(other))) == one - other
    assert seqs_of(transcript.up_to(to)) == {seq for seq in one if seq <= to}
