"""Recorded steps that do not fit the program any more, or the agent: a person is asked what becomes of the turn.

The question is the step of a pause, after the others. It names how many of them still fit, and the answer holds for
these: what is dropped, and may be run again, is what the person was shown. Records are not removed before the message
is settled; which of them hold follows from the answers among them (`podium.history.step_record.standing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from podium.history.step_record import (
    BEGIN_ANEW,
    GIVE_UP,
    GO_ON,
    QUESTION,
    TRY_AGAIN,
    StepRecord,
    args_hash,
    standing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json
    from podium.errors import Permanent

__all__ = ["Misfit", "holding", "is_given_up", "question"]

_MAX_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why the recorded steps of a message do not fit."""

    error: Permanent
    fits: int
    """How many of those that hold fit: as many as the attempt had returned."""


def holding(records: Sequence[StepRecord]) -> list[StepRecord]:
    """Return the records that hold, without an open pause at which no message has paused: it is asked for anew."""
    held = [records[place] for place in standing([(record.pause, record.result) for record in records])]
    return [record for record in held if not record.is_open or record is records[-1]]


def is_given_up(records: Sequence[StepRecord]) -> bool:
    """Return whether a person has given the turn up."""
    return bool(records) and _is_question(records[-1]) and records[-1].result == GIVE_UP


def question(records: Sequence[StepRecord], misfit: Misfit, now_ms: int, expires_ms: int | None) -> StepRecord:
    """Return the record of the question what becomes of the turn.

    Args:
        records: all of the message, of which there is one at least.
        expires_ms: when nobody waits for the turn any more.
    """
    keys = [record.key for record in holding(records)]
    fit, others = keys[: misfit.fits], keys[misfit.fits :]
    choices = [TRY_AGAIN, *([GO_ON] if fit else []), BEGIN_ANEW, GIVE_UP]
    keeps = f" {GO_ON} keeps {_named(fit)} and drops {_named(others)}," if fit else ""
    reason = (
        f"{misfit.error}. {TRY_AGAIN} keeps all steps, for code that was restored,{keeps} {BEGIN_ANEW} drops all of "
        f"{_named(keys)}; what is dropped is run again if the program asks for it. {GIVE_UP} cancels the message"
    )
    schema: Json = {"enum": [*choices]}
    last = records[-1]
    return StepRecord(
        key=f"{QUESTION} {len(records) + 1}",
        name=QUESTION,
        args_hash=args_hash([schema, reason]),
        result=None,
        effects=[],
        patch=[],
        before=0,
        version=last.version,
        tree=last.tree,
        changes_files=last.changes_files,
        started_ms=now_ms,
        ended_ms=now_ms,
        running=[],
        failed=[],
        steered=[],
        base_turn=last.base_turn,
        pause={"kind": "program", "reason": reason, "schema": schema, "expires": expires_ms, "fits": misfit.fits},
    )


def _is_question(record: StepRecord) -> bool:
    return record.pause is not None and record.pause["kind"] == "program"


def _named(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    more = f" and {len(keys) - _MAX_NAMED} more" if len(keys) > _MAX_NAMED else ""
    return ", ".join(keys[:_MAX_NAMED]) + more
