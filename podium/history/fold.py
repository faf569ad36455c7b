"""Folding history: append an event with the whole agent, and drop the events before it.

These are two independent writes: a *mark* (``agent.snapshot``) is appended under the agent's lease, as an event like
any other; the events before a mark are dropped later, or at once. A crash between the writes leaves a mark, which the
next call finds. Events that a fork reads are not dropped. Artifacts are events, and are dropped with their turns. The
versions of files are not dropped: they are in the workspace's operation log, which continues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from chronicle.errors import BranchInUse, BranchVersionConflict, StaleEpoch
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Snapshot
from podium.address import label
from podium.agent_record import find_session, read_agent, snapshot_body
from podium.errors import AgentInUse
from podium.events import AGENT_SNAPSHOT, FULL_STATE_EVENTS
from podium.history.branching import agent_awake, forks_of, rolled_back_trees, sleeping_lease
from podium.history.retention import MAX_BETWEEN, QUARTER, HistoryMark, RetentionPlan, plan_folding

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.ids import BlobId, EventId, IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Branch, Event, Head, Lease, Session
    from chronicle.workspace.port import TreeRef
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.history.retention import Retention

__all__ = ["Dropped", "Folded", "fold_agent", "full_state_payload", "mark_commit", "plan_retention"]

_WINDOW: Final = 1000
"""Events read at a time, backwards."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The size of a part of an agent's history."""

    events: int = 0
    """Events that the agent owns; inherited ones stay with their owner."""
    turns: int = 0
    """Turns that cannot be read without it, inherited ones included."""
    size_bytes: int = 0
    """Of the payloads in the journal; those out of line are removed by the next gc."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of folding an agent's history."""

    head: Head
    """Of its branch, after it."""
    marked: bool
    """Whether a mark was appended."""
    dropped: Dropped
    first_turn: int
    """The oldest kept turn."""
    later: Dropped
    """Fold that is possible once the newest mark has expired."""
    later_mark: HistoryMark | None
    """That mark; ``None`` if there is nothing to drop before it."""


def full_state_payload(record: AgentRecord, given_up_trees: Sequence[TreeRef], epoch: int) -> JsonObject:
    """Return the payload of an event with the whole agent: `podium.events.AgentSnapshot`."""
    tree = record.tree
    return {
        "agent": str(record.address),
        "entity_type": record.entity_type,
        "version": record.schema_version,
        "state": record.state,
        "tree_id": tree.tree_id if tree else None,
        "oplog_id": tree.oplog_id if tree else None,
        "given_up": [{"tree_id": ref.tree_id, "oplog_id": ref.oplog_id} for ref in given_up_trees],
        "epoch": epoch,
        **({"config": record.config} if record.config else {}),
    }


def mark_commit(
    record: AgentRecord,
    head: Head,
    given_up_trees: Sequence[TreeRef],
    epoch: int,
    event_id: EventId,
    now_ms: int,
    large: MutableMapping[BlobId, bytes],
) -> Commit:
    """Return the commit that appends a mark, with a snapshot, so that opening does not start from an older one.

    Args:
        record: the agent at its head.
        head: the branch's; no turn was committed since the record was read.
        given_up_trees: see `podium.history.branching.rolled_back_trees`.
        large: gets the payload if it goes out of line; it must be durable before the commit.
    """
    payload = full_state_payload(record, given_up_trees, epoch)
    events = seal(head, [Draft(event_id, AGENT_SNAPSHOT, payload, head.turn, now_ms)], large)
    body = snapshot_body(
        record.turn, record.entity_type, record.schema_version, record.state, record.tree, record.config
    )
    snapshot = Snapshot(head.branch_id, events[-1].seq, body)
    return Commit(record.session.session_id, head, events, epoch, snapshot=snapshot)


def plan_retention(store: JournalStore, branch: Branch, retention: Retention, now_ms: int) -> RetentionPlan:
    """Return what an agent's retention requires now.

    The cost is bounded by the retention and by `podium.history.retention.MAX_BETWEEN`, not by the length of the
    history.

    Args:
        branch: the agent's, with its head.
    """
    begin = _begin(store, branch)
    if begin is None:
        return RetentionPlan(None, mark=False)
    marks = _marks(store, branch, begin, retention, now_ms)
    return plan_folding(retention, branch.head.seq, branch.head.turn, now_ms, begin, marks)


def fold_agent(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    retention: Retention | None,
    ids: IdSource,
    now_ms: int,
    *,
    dry_run: bool = False,
) -> Folded:
    """Drop the history of a sleeping agent, as far as its retention allows.

    Args:
        retention: how much to keep; ``None`` to keep the present state only.
        dry_run: write nothing, and return what would be done.

    Raises:
        UnknownAgent: there is none, or it never started.
        AgentInUse: forks read the events to be dropped; nothing was changed.
        AgentAwake: it is awake, or was woken meanwhile; nothing was dropped.
    """
    read_agent(store, blobs, address)  # an agent that never started is refused before an epoch is used
    session = find_session(store, address)
    if dry_run:
        return _fold(store, blobs, address, retention, None, ids, now_ms)
    with sleeping_lease(store, session, now_ms) as lease:
        return _fold(store, blobs, address, retention, lease, ids, now_ms)


def _fold(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    retention: Retention | None,
    lease: Lease | None,
    ids: IdSource,
    now_ms: int,
) -> Folded:
    """Fold under a lease; without one, only return what would be done."""
    record = read_agent(store, blobs, address)
    session, head = record.session, record.head
    branch = store.branch(head.branch_id)
    begin = _begin(store, branch) or HistoryMark(head.seq + 1, head.turn, now_ms)
    oldest = next(store.events(head.branch_id, types=FULL_STATE_EVENTS)).turn
    if retention is None:
        # There is a mark at the head already if an earlier call crashed before it dropped anything.
        todo = RetentionPlan(None, mark=not _marks_in(store, head, max(head.seq, begin.seq) - 1, head.seq))
    else:
        todo = plan_retention(store, branch, retention, now_ms)
    if todo.fold_to is not None or retention is None:
        _refuse_if_read(store, session)
    if todo.mark:
        newest = HistoryMark(head.seq + 1, head.turn, now_ms)
        if lease is not None:
            head = _commit_mark(store, blobs, record, lease, ids, now_ms)
    else:
        newest = _newest_mark(store, head, begin)
    fold_to = newest if retention is None else todo.fold_to
    first = replace(begin, turn=oldest)
    dropped = Dropped()
    if fold_to is not None and fold_to.seq - 1 > branch.folded_seq:  # also of a fork without earlier events of its own
        dropped = _count(store, head, first, fold_to)
        first = fold_to
        if lease is not None:
            try:
                store.fold(head.branch_id, fold_to.seq, now_ms)
            except BranchInUse as error:
                _refuse_if_read(store, session)
                raise AgentInUse(
                    f"{label(session)} was forked at this moment; look at the fork and try again", ()
                ) from error
    later = _count(store, head, first, newest)
    return Folded(head, todo.mark, dropped, first.turn, later, newest if later.events else None)


def _commit_mark(
    store: JournalStore, blobs: BlobStore, record: AgentRecord, lease: Lease, ids: IdSource, now_ms: int
) -> Head:
    large: dict[BlobId, bytes] = {}
    trees = rolled_back_trees(store, blobs, record)
    commit = mark_commit(record, record.head, trees, lease.epoch, ids.event(now_ms), now_ms, large)
    if large:
        blobs.put(large)
    try:
        return store.commit(commit)
    except (StaleEpoch, BranchVersionConflict) as error:
        raise agent_awake(label(record.session), "was woken at this moment") from error


def _refuse_if_read(store: JournalStore, session: Session) -> None:
    forks = tuple(label(fork) for fork in forks_of(store, session))
    if forks:
        raise AgentInUse(
            f"the history of {label(session)} is read by its forks {', '.join(forks)}, so nothing of it was dropped; "
            "fold or delete them first: a fork that is folded no longer reads its parent",
            forks,
        )


def _begin(store: EventRecords, branch: Branch) -> HistoryMark | None:
    """Return the first event that a branch owns."""
    base = max(branch.parent_seq, branch.folded_seq)
    first = next(store.events(branch.head.branch_id, base, base + 1), None)
    return _mark(first) if first is not None else None


def _marks(
    store: JournalStore, branch: Branch, begin: HistoryMark, retention: Retention, now_ms: int
) -> list[HistoryMark]:
    """Return the newest marks of a branch, and the newest expired one."""
    head = branch.head
    recent = max(_first_kept(store, head, begin, retention, now_ms, QUARTER), head.seq - MAX_BETWEEN)
    found = _marks_in(store, head, recent - 1, head.seq)
    end = _first_kept(store, head, begin, retention, now_ms, 1) - 1
    lowest = max(begin.seq, end - MAX_BETWEEN)
    while end > lowest:
        start = max(lowest, end - _WINDOW)
        older = _marks_in(store, head, start, end)
        if older:
            return [*older, *found]
        end = start
    return found


def _first_kept(
    store: EventRecords, head: Head, begin: HistoryMark, retention: Retention, now_ms: int, part: int
) -> int:
    """Return the seq of the first event that has not expired; a binary search, so it reads few events."""
    low, high = begin.seq, head.seq + 1
    while low < high:
        middle = (low + high) // 2
        event = next(store.events(head.branch_id, middle - 1, middle), None)
        if event is None or retention.is_expired(_mark(event), head.turn, now_ms, part):
            low = middle + 1
        else:
            high = middle
    return low


def _newest_mark(store: JournalStore, head: Head, begin: HistoryMark) -> HistoryMark:
    """Return the newest mark of a branch; its first event if it has none."""
    end = head.seq
    while end > begin.seq:
        start = max(begin.seq, end - _WINDOW)
        found = _marks_in(store, head, start, end)
        if found:
            return found[-1]
        end = start
    return begin


def _marks_in(store: EventRecords, head: Head, after_seq: int, to_seq: int) -> list[HistoryMark]:
    return [_mark(event) for event in store.events(head.branch_id, after_seq, to_seq, FULL_STATE_EVENTS)]


def _mark(event: Event) -> HistoryMark:
    return HistoryMark(event.seq, event.turn, event.ts)


def _count(store: EventRecords, head: Head, first: HistoryMark, to: HistoryMark) -> Dropped:
    """Return the size of the history from one event to before another."""
    events = size_bytes = 0
    for event in store.events(head.branch_id, first.seq - 1, to.seq - 1):
        events += 1
        size_bytes += len(event.payload or b"")
    return Dropped(events, to.turn - first.turn, size_bytes)
