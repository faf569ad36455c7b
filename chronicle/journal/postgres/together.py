"""Commits and steps of many agents as a handful of statements, each with arrays of the rows of all of them.

Alone, a commit is eight statements and a wait for answers; a hundred together are as many statements as one, with
one wait. What one of them would be refused for is not looked for here: then none is applied, and the caller applies
them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.journal.sql.commits import ENDED, SETTLE, Ready

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.journal.records import Outcome
    from chronicle.journal.sql.port import Connection, Cursor
    from chronicle.journal.sql.rows import Row
    from chronicle.journal.sql.writes import ReadyWrite

__all__ = ["apply_together", "lock_sessions", "may_be_together"]


def _unnest(*types: str) -> str:
    return f"unnest({', '.join(f'?::{each}[]' for each in types)})"


_LOCK: Final = 'SELECT 1 FROM session WHERE session_id = ANY(?::text[]) ORDER BY session_id COLLATE "C" FOR SHARE'
_ADVANCE: Final = f"""
UPDATE branch SET seq = given.seq, turn = given.turn, event_id = given.event_id, hash = given.hash
FROM {_unnest("bigint", "bigint", "text", "bytea", "bigint", "bigint", "bytea", "bigint", "bigint")}
    AS given (seq, turn, event_id, hash, key, expected_seq, expected_hash, session_key, epoch)
JOIN session ON session.key = given.session_key AND session.epoch = given.epoch
    AND (session.holder IS NOT NULL OR session.epoch = 0)
WHERE branch.key = given.key AND branch.seq = given.expected_seq AND branch.hash = given.expected_hash
"""
_EVENTS: Final = f"""
INSERT INTO event (id, event_id, type, turn, ts, correlation_id, causation_id, payload_ref, payload_sha256, erased,
    hash, payload)
SELECT * FROM {
    _unnest("bigint", "text", "text", "bigint", "bigint", "text", "text", "text", "bytea", "integer", "bytea", "bytea")
}
"""
_OUTBOX: Final = f"""
INSERT INTO outbox (message_id, target, body, created_ms, sender, namespace, headers)
SELECT * FROM {_unnest("text", "text", "bytea", "bigint", "text", "text", "bytea")}
"""
_OF_ONE: Final = "WHERE message_id = ? AND session = ? AND"
_OF_MANY: Final = (
    f"FROM {_unnest('text', 'bigint')} AS given (id, key) WHERE message_id = given.id AND session = given.key AND"
)
_SETTLE: Final = {outcome: statement.replace(_OF_ONE, _OF_MANY) for outcome, statement in SETTLE.items()}
_DROP_STEPS: Final = "DELETE FROM step USING inbox WHERE message = inbox.id AND inbox.message_id = ANY(?::text[])"
_STEPS: Final = f"""
INSERT INTO step (message, number, key, body)
SELECT inbox.id, given.number, given.key, given.body
FROM {_unnest("bigint", "text", "bytea", "text", "bigint", "text")}
    AS given (number, key, body, session_id, epoch, message_id)
JOIN session ON session.session_id = given.session_id AND session.epoch = given.epoch
    AND (session.holder IS NOT NULL OR session.epoch = 0)
JOIN inbox ON inbox.session = session.key AND inbox.message_id = given.message_id AND inbox.status = 0
ON CONFLICT (message, number) DO NOTHING
"""


def may_be_together(writes: Sequence[ReadyWrite]) -> bool:
    """Whether writes may be applied together: several, none with a snapshot or a reminder, no two to one branch."""
    commits = [write for write in writes if isinstance(write, Ready)]
    return (
        len(writes) > 1
        and not any(commit.snapshot is not None or commit.reminders for commit in commits)
        and len({commit.branch_key for commit in commits}) == len(commits)
    )


def apply_together(db: Connection, writes: Sequence[ReadyWrite]) -> bool:
    """Apply writes in the open transaction; return whether all were applied, else the caller must roll back."""
    commits = [write for write in writes if isinstance(write, Ready)]
    steps = [write for write in writes if not isinstance(write, Ready)]
    expected: list[tuple[Cursor, int]] = []
    lock_sessions(db, writes)
    if commits:
        expected += _commit(db, commits)
    if steps:
        expected.append(_changed(db, _STEPS, [step.values for step in steps]))
    return all(len(cursor.fetchall()) == count for cursor, count in expected)


def lock_sessions(db: Connection, writes: Sequence[ReadyWrite]) -> None:
    """Lock the sessions of writes, in the order in which admissions and renewals of leases lock those of theirs."""
    db.execute(_LOCK, (list({write.session_id for write in writes}),))


def _commit(db: Connection, commits: Sequence[Ready]) -> list[tuple[Cursor, int]]:
    """Send the statements of commits; return those whose numbers of rows tell whether all were accepted."""
    expected = [_changed(db, _ADVANCE, [commit.advance for commit in commits])]
    db.execute(_EVENTS, _columns(row for commit in commits for row in commit.events))
    settled: dict[Outcome, list[Row]] = {}
    for commit in commits:
        for outcome, message_id in commit.settled:
            settled.setdefault(outcome, []).append((message_id, commit.session_key))
    expected += [_changed(db, _SETTLE[outcome], rows) for outcome, rows in settled.items()]
    ended = [message_id for outcome in ENDED for message_id, _ in settled.get(outcome, ())]
    if ended:
        db.execute(_DROP_STEPS, (ended,))
    outbox = [row for commit in commits for row in commit.outbox]
    if outbox:
        db.execute(_OUTBOX, _columns(outbox))
    return expected


def _changed(db: Connection, statement: str, rows: Sequence[Row]) -> tuple[Cursor, int]:
    """Send a statement for rows; return what has a row for each that it changed, and the number of those given."""
    return db.execute(f"{statement} RETURNING 1", _columns(rows)), len(rows)


def _columns(rows: Iterable[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
