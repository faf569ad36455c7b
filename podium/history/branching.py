"""Branches of agents: forking an agent at any turn, and rewinding it to another turn.

Both only append. A fork is an agent of its own whose branch continues the parent's. Its cost does not depend on the
length of the history or the size of state and files, and it writes nothing to the parent, which may be running. A
rewind is a turn like any other, so a rewind to a later turn undoes it.

Use cases over the ports; time and ids are arguments. docs/internals/branches.md has the order of writes and the crash
states.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from chronicle.blobs.buffer import BlobBuffer
from chronicle.errors import BranchVersionConflict, Conflict, InvalidInput, LeaseHeld, StaleEpoch
from chronicle.journal.chain import seal
from chronicle.journal.payloads import payload_of, seal_durably
from chronicle.journal.records import Commit, Draft
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.history.rewind import rewound
from podium.address import label
from podium.agent_record import find_session, read_agent, trees_of, turn_end_seq
from podium.errors import AgentAwake, AgentExists, UnknownMoment
from podium.events import (
    AGENT_DETACHED,
    AGENT_FORKED,
    AGENT_REWOUND,
    AGENT_SNAPSHOT,
    PARTS,
    TURN_CANCELLED,
    TURN_FAILED,
    TURN_PAUSED,
)
from podium.history.transcript import transcript_events, visible_transcript
from podium.state import diff

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BranchId, IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.ports.leases import LeaseRecords
    from chronicle.journal.records import Branch, Head, Lease, Session
    from chronicle.workspace.port import TreeRef
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.events import Part

__all__ = [
    "Forked",
    "Rewind",
    "agent_awake",
    "ended_uncleanly",
    "fork_agent",
    "fork_at",
    "forks_of",
    "owner_of",
    "plan_rewind",
    "rewind_agent",
    "sleeping_lease",
]

_HOLDER: Final = "podium-cli"
"""The lease holder while a sleeping agent is written: no process, so it is not taken for a live activation."""
_AFTER_LOSS: Final = "podium-cli-after-loss"
"""The same, after a lease that its holder had not released."""
_LEASE_MS: Final = 30_000
_WITH_GIVEN_UP: Final = (TURN_FAILED, TURN_CANCELLED, TURN_PAUSED, AGENT_SNAPSHOT, AGENT_DETACHED)


@dataclass(frozen=True, slots=True)
class Forked:
    """A new fork."""

    session: Session
    head: Head
    """Of the fork's branch, `agent.forked` included."""
    parent_branch_id: BranchId
    """The branch that owns the event after which the fork continues."""
    turn: int
    """The turn that it continues."""
    seq: int
    """Of the event that ended this turn."""


def fork_agent(
    store: JournalStore, source: Address, turn: int | None, target: Address, ids: IdSource, now_ms: int
) -> Forked:
    """Create an agent with the state, files and history of another one at the end of a turn.

    The fork does not get the source's pending messages. A call that crashed half-way is completed by the same call;
    until then the fork works and only lacks its first event.

    Args:
        turn: the source's last one if ``None``. Failed attempts after it are not part of it.
        target: of the same type, because the same code runs it.

    Raises:
        UnknownAgent: there is no such source, or it never started.
        UnknownMoment: the source has not committed that turn.
        AgentExists: there is an agent of the target's address already.
        InvalidInput: the target is of another tenant.
    """
    if target.tenant != source.tenant:
        raise InvalidInput(f"{target} is of another tenant than {source}; a fork stays in the tenant of its source")
    head = store.head(find_session(store, source).main_branch_id)
    at = head.turn if turn is None else turn
    seq = turn_end_seq(store, source, head, at)
    parent = owner_of(store, head.branch_id, seq)
    return fork_at(store, parent, seq, at, str(source), target, ids, now_ms)


def fork_at(
    store: JournalStore,
    parent: Branch,
    seq: int,
    turn: int,
    source: str,
    target: Address,
    ids: IdSource,
    now_ms: int,
) -> Forked:
    """Create an agent that continues a branch after an event that the branch owns and that ended a turn.

    Args:
        source: the address of the parent agent, for the record.

    Raises:
        AgentExists: there is an agent of the target's address already.
    """
    session = _fork_session(store, parent, seq, target, ids, now_ms)
    draft = Draft(
        ids.event(now_ms),
        AGENT_FORKED,
        {
            "agent": str(target),
            "from": {"agent": source, "branch": parent.branch_id, "turn": turn, "seq": seq},
        },
        turn,
        now_ms,
    )
    start = store.head(session.main_branch_id)
    if start.seq != seq:  # another call completed it, and it may have been woken, between our two calls
        raise _exists(target)
    try:
        made = store.commit(Commit(session.session_id, start, seal(start, [draft]), epoch=None))
    except (Conflict, StaleEpoch) as error:
        raise _exists(target) from error
    return Forked(session, made, parent.branch_id, turn, seq)


@dataclass(frozen=True, slots=True)
class Rewind:
    """The plan of a rewind."""

    now: AgentRecord
    then: AgentRecord
    parts: tuple[Part, ...]
    """The parts to restore, in the order of `PARTS`."""
    patch: list[JsonObject]
    """From the state now to the state then; empty if the state is not restored."""
    changes_transcript: bool
    """Whether the visible transcript changes."""

    @property
    def only(self) -> Part | list[Part] | None:
        """The part to restore, or the parts; ``None`` for all."""
        if len(self.parts) == len(PARTS):
            return None
        return self.parts[0] if len(self.parts) == 1 else list(self.parts)

    @property
    def tree(self) -> TreeRef | None:
        """The tree whose content is restored."""
        return self.then.tree if "files" in self.parts else self.now.tree

    @property
    def schema(self) -> AgentRecord:
        """The record whose state is restored."""
        return self.then if "state" in self.parts else self.now

    @property
    def continued_turn(self) -> int:
        """The turn whose visible transcript is continued."""
        return self.then.turn if "transcript" in self.parts else self.now.turn

    @property
    def changes_state(self) -> bool:
        """Whether the state, the version of its class or the configuration that it has seen changes."""
        now, then = self.now, self.schema
        return bool(self.patch) or (now.entity_type, now.schema_version, now.config) != (
            then.entity_type,
            then.schema_version,
            then.config,
        )


def plan_rewind(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    turn: int,
    only: Collection[Part] | None = None,
    *,
    at: int | None = None,
) -> Rewind:
    """Return what a rewind to a turn would change. Read-only; works while the agent runs.

    Args:
        only: the parts to restore; all if ``None``.
        at: the turn to start from; the agent's last one if ``None``.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
    """
    now = read_agent(store, blobs, address, at)
    then = read_agent(store, blobs, address, turn)
    parts = tuple(part for part in PARTS if only is None or part in only)
    patch = diff(now.state, then.state) if "state" in parts else []
    return Rewind(now, then, parts, patch, "transcript" in parts and _differs(store, blobs, now, then))


def rewind_agent(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    turn: int,
    only: Collection[Part] | None,
    ids: IdSource,
    now_ms: int,
) -> tuple[Rewind, Head | None]:
    """Rewind a sleeping agent to the end of a turn, as a turn of its own: state, files, transcript, or some of them.

    Blobs are written first, then one commit, under a new epoch. Messages admitted meanwhile stay in the inbox.

    Args:
        turn: any committed turn; one after the target of an earlier rewind undoes that rewind.
        only: the parts to restore; all if ``None``.

    Returns:
        the plan, and the branch's head after it; ``None`` for the head if nothing changed and nothing was written.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
        AgentAwake: it is awake, or was woken meanwhile; nothing was written.
    """
    plan_rewind(store, blobs, address, turn, only)  # an unknown turn is refused before an epoch is used
    session = find_session(store, address)
    with sleeping_lease(store, session, now_ms) as lease:
        plan = plan_rewind(store, blobs, address, turn, only)
        head = plan.now.head
        tree = _rewound_tree(store, blobs, plan, now_ms)
        if tree == plan.now.tree and not plan.changes_state and not plan.changes_transcript:
            return plan, None
        payload: JsonObject = {
            "to": turn,
            "only": cast("Json", plan.only),
            "transcript": plan.continued_turn,
            "state": {
                "entity_type": plan.schema.entity_type,
                "version": plan.schema.schema_version,
                "patch": cast("list[Json]", plan.patch),
            },
            "tree_id": tree.tree_id if tree else None,
            "oplog_id": tree.oplog_id if tree else None,
            "epoch": lease.epoch,
            **({"config": plan.schema.config} if plan.schema.config != plan.now.config else {}),
        }
        draft = Draft(ids.event(now_ms), AGENT_REWOUND, payload, head.turn + 1, now_ms)
        events = seal_durably(blobs, head, [draft])
        try:
            made = store.commit(Commit(session.session_id, head, events, lease.epoch))
        except (StaleEpoch, BranchVersionConflict) as error:
            raise agent_awake(label(session), "was woken at this moment") from error
        return plan, made


def rolled_back_trees(store: JournalStore, blobs: BlobReader, record: AgentRecord) -> list[TreeRef]:
    """Return the trees of attempts that were rolled back since an agent's tree last changed, or just before.

    Trees whose events were dropped are in the mark that the history begins with.

    Args:
        record: the agent at its head.
    """
    head, now = record.head, record.tree
    if now is None:
        return []
    turn = min(read_root(blobs, now.oplog_id).turn, head.turn)
    try:
        since = turn_end_seq(store, record.address, head, turn - 1) if turn else 0
    except UnknownMoment:  # it was dropped, so all kept events come after it
        since = 0
    trees: list[TreeRef] = []
    for event in store.events(head.branch_id, after_seq=since, to_seq=head.seq, types=_WITH_GIVEN_UP):
        if not event.erased:
            trees.extend(trees_of(cast("dict[str, Json]", payload_of(event, blobs))))
    return list(dict.fromkeys(tree for tree in trees if tree != now))


def forks_of(store: JournalStore, session: Session) -> list[Session]:
    """Return the sessions whose branches continue a branch of this one."""
    own = {branch.branch_id for branch in store.branches(session.session_id)}
    return [
        other
        for other in store.sessions()
        if other.session_id != session.session_id
        and any(branch.parent_branch_id in own and not branch.folded_seq for branch in store.branches(other.session_id))
    ]


def owner_of(store: BranchRecords, branch_id: BranchId, seq: int) -> Branch:
    """Return the branch that owns an event: this one, or the ancestor from which it is read."""
    branch = store.branch(branch_id)
    while branch.parent_branch_id is not None and seq <= branch.parent_seq:
        branch = store.branch(branch.parent_branch_id)
    return branch


def _fork_session(
    store: JournalStore, parent: Branch, seq: int, target: Address, ids: IdSource, now_ms: int
) -> Session:
    """Create the fork's session, or return the one of an equal call that crashed."""
    try:
        return store.fork_session(parent.branch_id, seq, target.name, ids.session(now_ms), ids.branch(now_ms), now_ms)
    except Conflict as error:
        session = store.session(target.name, target.tenant)
        branch = store.branch(session.main_branch_id)
        if (branch.parent_branch_id, branch.parent_seq, branch.head.seq) != (parent.branch_id, seq, seq):
            raise _exists(target) from error
        return session


@contextmanager
def sleeping_lease(store: LeaseRecords, session: Session, now_ms: int) -> Iterator[Lease]:
    """Hold the lease of a sleeping agent.

    If the last holder did not release its lease, neither does this one: it lets the lease expire, so that the next
    activation still detects that the last one did not end in order.

    Raises:
        AgentAwake: another holder's lease is in force.
    """
    lost = ended_uncleanly(store.lease(session.session_id))
    try:
        lease = store.acquire_lease(session.session_id, _AFTER_LOSS if lost else _HOLDER, now_ms, _LEASE_MS)
    except LeaseHeld as error:
        raise agent_awake(label(session), "is awake") from error
    try:
        yield lease
    finally:
        if lost:
            store.renew_leases([(session.session_id, lease.epoch)], now_ms, 0)
        else:
            store.release_lease(session.session_id, lease.epoch)


def ended_uncleanly(lease: Lease | None) -> bool:
    """Whether an expired lease shows that an activation did not end in order; a command after it keeps that evidence.

    A command that crashed, or that lost its lease to another one, attempted no message.
    """
    return lease is not None and lease.holder != _HOLDER


def _rewound_tree(store: JournalStore, blobs: BlobStore, plan: Rewind, now_ms: int) -> TreeRef | None:
    """Return the tree after the rewind; it is durable."""
    now = plan.now.tree
    if now is None or "files" not in plan.parts:
        return now
    buffer = BlobBuffer(blobs)
    tree = rewound(buffer, now, plan.tree, plan.now.head.turn + 1, now_ms, rolled_back_trees(store, blobs, plan.now))
    buffer.flush()
    return tree


def _differs(store: JournalStore, blobs: BlobReader, now: AgentRecord, then: AgentRecord) -> bool:
    """Whether the visible transcripts at two turns of an agent differ."""
    one, other = (visible_transcript(store, blobs, now.address, now.head, record.version_seq) for record in (now, then))
    branch_id = now.head.branch_id
    return any(
        next(transcript_events(store, branch_id, left.minus(right)), None) is not None
        for left, right in ((one, other), (other, one))
    )


def agent_awake(name: str, what: str) -> AgentAwake:
    """Return the error of an agent that must sleep."""
    return AgentAwake(f"{name} {what}; try again when it sleeps: passivate it, or wait until it is idle", name)


def _exists(target: Address) -> AgentExists:
    return AgentExists(f"there is an agent {target} already; take another key for the fork")
