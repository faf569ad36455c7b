"""The attempt of a message that ended with its process: nobody was left to record it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.journal.records import Outcome
from podium.turn.journal.commit import FailedAttempt, NextCommit, failure_commit

if TYPE_CHECKING:
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import InboxMessage, Lease
    from podium.address import Address
    from podium.events import ErrorInfo

__all__ = ["judge_lost_attempt", "record_lost_attempt"]


def judge_lost_attempt(message: InboxMessage | None, max_attempts: int, how: str | None) -> tuple[Outcome, ErrorInfo]:
    """Return what becomes of the message of a lost attempt, and the error of the attempt.

    Args:
        message: ``None`` if none was being handled.
        max_attempts: of the agent's class.
        how: how the process ended, in a few words; ``None`` if unknown.
    """
    was_last = message is not None and message.attempts + 1 >= max_attempts
    ended = "its process ended before the turn was committed"
    text = f"{ended}: {how}" if how else ended
    return Outcome.PARKED if was_last else Outcome.FAILED, {"type": "HostLost", "message": text}


def record_lost_attempt(
    store: JournalStore,
    address: Address,
    lease: Lease,
    max_attempts: int,
    how: str | None,
    ids: IdSource,
    now_ms: int,
    *,
    has_on_failed: bool,
) -> Outcome | None:
    """Record an attempt of an agent's oldest message, under the lease of the process that ended. Durable on return.

    It is for an agent whose next activation may come to the same end before it has recorded anything. Its workspace is
    left to that one.

    Args:
        max_attempts: of the agent's class.
        how: how the process ended, in a few words; ``None`` if unknown.
        has_on_failed: whether the class has an ``on_failed``, for which the outbox gets a message after the last one.

    Returns:
        what became of the message; ``None`` if none is pending.

    Raises:
        StaleEpoch: another holder has taken the lease; nothing was written.
        ChronicleError: the journal cannot be read or written.
    """
    session = store.session(address.name, address.tenant)
    message = next(iter(store.pending(session.session_id, limit=1)), None)
    if message is None:
        return None
    outcome, error = judge_lost_attempt(message, max_attempts, how)
    next_commit = NextCommit(session, store.head(session.main_branch_id), lease.epoch, ids, now_ms)
    attempt = FailedAttempt(outcome, error, message)
    store.commit(failure_commit(next_commit, attempt, address if has_on_failed else None))
    return outcome
