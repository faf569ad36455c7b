"""Reading an agent from the journal: its state, tree and position at its head or at any turn.

Reading replays deltas over the nearest snapshot. It needs no lease and works while the agent runs; it always sees a
committed turn. Nothing here writes; :func:`snapshot_body` builds the bytes of a snapshot for a writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.journal.payloads import payload_bytes
from chronicle.journal.records import SessionFilter
from chronicle.workspace.port import TreeRef
from podium.errors import PodiumError, UnknownAgent, UnknownMoment
from podium.events import FULL_STATE_EVENTS, STATE_EVENTS
from podium.state import PatchError, apply_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BlobId, BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Event, Head, Session, Snapshot
    from podium.address import Address

__all__ = [
    "AgentRecord",
    "Replay",
    "find_session",
    "is_agent",
    "list_agents",
    "read_agent",
    "retry_if_folded",
    "snapshot_body",
    "tree_of",
    "trees_of",
    "turn_end_seq",
]

T = TypeVar("T")

_SNAPSHOT_FORMAT: Final = 1
_AROUND: Final = 8
"""Events read at a time in the search for the end of a turn: about two turns."""


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent at the end of a turn, as the journal has it."""

    address: Address
    session: Session
    head: Head
    """The branch's current head, whatever the turn."""
    turn: int
    version_seq: int
    """The ``seq`` of the event that ended this turn: the branch's version then."""
    entity_type: str
    schema_version: int
    """The state class's ``_version`` that wrote `state`."""
    state: JsonObject
    tree: TreeRef | None
    """The workspace at the end of the turn; ``None`` for an agent that never had one."""
    config: JsonObject
    """The configuration that the agent has seen; empty without one."""
    replayed_turns: int
    """Turns replayed over the snapshot."""
    replayed_bytes: int
    """Their payloads' size."""
    snapshot_bytes: int = 0
    """The size of that snapshot; 0 without one."""


@dataclass(slots=True)
class Replay:
    """An agent while its events are applied, one at a time."""

    turn: int = 0
    seq: int = 0
    entity_type: str = ""
    schema_version: int = 0
    state: JsonObject | None = None
    tree: TreeRef | None = None
    config: JsonObject = field(default_factory=dict)
    turns: int = 0
    bytes: int = 0
    snapshot_bytes: int = 0

    def apply(self, event: Event, blobs: BlobReader) -> None:
        """Apply one of `STATE_EVENTS`.

        Args:
            blobs: where large payloads are.

        Raises:
            Corrupt: the event's payload is missing, or it does not follow the events applied before.
            Unavailable: the blob store could not be reached.
        """
        if event.type not in FULL_STATE_EVENTS and self.state is not None and event.turn != self.turn + 1:
            raise Corrupt(
                f"turn {event.turn} (seq {event.seq}) follows turn {self.turn}; the turns between are missing"
            )
        try:
            data = payload_bytes(event, blobs)
        except NotFound as error:
            raise Corrupt(str(error)) from error
        payload = cast("dict[str, Json]", decode(data))
        if event.type in FULL_STATE_EVENTS:
            self.state = cast("JsonObject", payload["state"])
            self.entity_type = cast("str", payload["entity_type"])
            self.schema_version = cast("int", payload["version"])
        else:
            if self.state is None:
                raise Corrupt(f"turn {event.turn} (seq {event.seq}) has no state before it: the beginning is missing")
            delta = cast("dict[str, Json]", payload["state"])
            try:
                self.state = cast("JsonObject", apply_patch(self.state, cast("list[JsonObject]", delta["patch"])))
            except (PatchError, KeyError, TypeError) as error:
                raise Corrupt(f"the patch of turn {event.turn} (seq {event.seq}) does not apply: {error}") from error
            self.entity_type = cast("str", delta["entity_type"])
            self.schema_version = cast("int", delta["version"])
            self.turns += 1
            self.bytes += len(data)
        if event.type in FULL_STATE_EVENTS or "config" in payload:
            self.config = cast("JsonObject", payload.get("config", {}))
        self.tree = tree_of(payload)
        self.turn = event.turn
        self.seq = event.seq

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Replay:
        """Start from a snapshot.

        Raises:
            UnsupportedFormat: a newer version wrote it.
        """
        body = cast("dict[str, Json]", decode(snapshot.body))
        if body["format"] != _SNAPSHOT_FORMAT:
            raise UnsupportedFormat(f"a snapshot of format {body['format']} (this code reads {_SNAPSHOT_FORMAT})")
        return cls(
            turn=cast("int", body["turn"]),
            seq=snapshot.seq,
            entity_type=cast("str", body["entity_type"]),
            schema_version=cast("int", body["version"]),
            state=cast("JsonObject", body["state"]),
            tree=tree_of(body),
            config=cast("JsonObject", body.get("config", {})),
            snapshot_bytes=len(snapshot.body),
        )


def snapshot_body(
    turn: int,
    entity_type: str,
    schema_version: int,
    state: JsonObject,
    tree: TreeRef | None,
    config: JsonObject | None = None,
) -> bytes:
    """Return the body of a snapshot of an agent at the end of a turn, as canonical JSON."""
    return encode(
        {
            "format": _SNAPSHOT_FORMAT,
            "turn": turn,
            "entity_type": entity_type,
            "version": schema_version,
            "state": state,
            "tree_id": tree.tree_id if tree else None,
            "oplog_id": tree.oplog_id if tree else None,
            **({"config": config} if config else {}),
        }
    )


def read_agent(store: JournalStore, blobs: BlobReader, address: Address, turn: int | None = None) -> AgentRecord:
    """Return an agent at the end of a turn; at its head if ``turn`` is ``None``.

    Args:
        blobs: where large payloads are.

    Raises:
        UnknownAgent: it is not in this journal, or never started.
        UnknownMoment: it has not committed that turn, or its history up to there was dropped.
        Corrupt: the stored events do not replay.
        Unavailable: a store could not be reached.
    """
    session = find_session(store, address)
    return retry_if_folded(store, session.main_branch_id, lambda: _read(store, blobs, address, session, turn))


def _read(store: JournalStore, blobs: BlobReader, address: Address, session: Session, turn: int | None) -> AgentRecord:
    head = store.head(session.main_branch_id)
    _check_turn(address, head, turn)
    replay = _start(store, head.branch_id, turn)
    for event in store.events(head.branch_id, after_seq=replay.seq, to_seq=head.seq, types=STATE_EVENTS):
        if turn is not None and event.turn > turn:
            break
        replay.apply(event, blobs)
    if replay.state is None or (turn is not None and replay.turn != turn):
        raise _missing(store, address, head, turn)
    if turn is None and replay.turn != head.turn:
        raise Corrupt(f"{address} is at turn {head.turn}, and the event that ended it is missing")
    return AgentRecord(
        address=address,
        session=session,
        head=head,
        turn=replay.turn,
        version_seq=replay.seq,
        entity_type=replay.entity_type,
        schema_version=replay.schema_version,
        state=replay.state,
        tree=replay.tree,
        config=replay.config,
        replayed_turns=replay.turns,
        replayed_bytes=replay.bytes,
        snapshot_bytes=replay.snapshot_bytes,
    )


def retry_if_folded(store: BranchRecords, branch_id: BranchId, read: Callable[[], T]) -> T:
    """Return the result of reading a branch's events; retry if the branch was folded meanwhile.

    Events are read in batches, so a fold between two batches leaves a gap, which the reader may or may not notice.
    """
    while True:
        folded_seq = store.branch(branch_id).folded_seq
        try:
            found = read()
        except (Corrupt, UnknownMoment):
            if store.branch(branch_id).folded_seq == folded_seq:
                raise
        else:
            if store.branch(branch_id).folded_seq == folded_seq:
                return found


def find_session(store: SessionRecords, address: Address) -> Session:
    """Return an agent's session.

    Raises:
        UnknownAgent: there is none.
    """
    try:
        return store.session(address.name, address.tenant)
    except NotFound:
        raise UnknownAgent(f"no agent {address} in this home") from None


def turn_end_seq(store: JournalStore, address: Address, head: Head, turn: int) -> int:
    """Return the ``seq`` of the event that ended a turn; reads a number of events logarithmic in the branch's length.

    Args:
        address: for messages.
        head: of the agent's branch.
        turn: from 0.

    Raises:
        UnknownAgent: the agent has an inbox but never started.
        UnknownMoment: it has not committed that turn, or its history up to there was dropped.
    """
    if head.seq == 0:
        raise _never_started(address)
    _check_turn(address, head, turn)
    low, high = 0, head.seq  # the turn's first event is in (low, high]: turn numbers never decrease
    low_turn, high_turn = -1, head.turn
    halve = False
    while high - low > 1:
        # Turns mostly have the same number of events: interpolate; bisect in between, for where they have not.
        share = 0.5 if halve else (turn - low_turn) / (high_turn - low_turn + 1)
        start = max(low, low + int((high - low) * share) - _AROUND // 2)
        end = min(start + _AROUND, high - 1)
        halve = not halve
        for event in store.events(head.branch_id, after_seq=start, to_seq=end):
            if event.turn >= turn:
                high, high_turn = event.seq, event.turn
                break
            low, low_turn = event.seq, event.turn
        else:
            low = max(low, end)  # no event of the turn up to here, or they were folded
    for event in store.events(head.branch_id, after_seq=high - 1, to_seq=head.seq, types=STATE_EVENTS):
        if event.turn == turn:
            return event.seq
        break
    raise _missing(store, address, head, turn)


def list_agents(store: SessionRecords, tenant: str | None = None) -> Sequence[Session]:
    """Return the sessions of agents, forks included, by name, then tenant.

    Args:
        tenant: only agents of this one; ``None`` for all.
    """
    return [session for session in store.sessions(namespace=tenant) if is_agent(session)]


def count_agents(store: SessionRecords, tenant: str) -> int:
    """Return the number of a tenant's agents, forks included; reads none of them."""
    return store.count_sessions(namespace=tenant, only=SessionFilter(with_slash=True))


def agent_exists(store: SessionRecords, address: Address) -> bool:
    """Whether there is an agent of that address, or messages for one."""
    try:
        store.session(address.name, address.tenant)
    except NotFound:
        return False
    return True


def is_agent(session: Session) -> bool:
    """Whether a session is an agent's, and not the inherited history of an imported one."""
    return "/" in session.name


def _check_turn(address: Address, head: Head, turn: int | None) -> None:
    if turn is not None and not 0 <= turn <= head.turn:
        raise UnknownMoment(f"{address} has turns 0 to {head.turn}; there is no turn {turn}")


def _missing(store: EventRecords, address: Address, head: Head, turn: int | None) -> PodiumError:
    """Return why an agent cannot be read at a turn: it never started, or its history up to there was dropped."""
    started = next(store.events(head.branch_id, types=STATE_EVENTS), None)
    return _never_started(address) if started is None else _dropped(address, turn)


def _never_started(address: Address) -> UnknownAgent:
    return UnknownAgent(f"agent {address} was addressed but never started in this home")


def _dropped(address: Address, turn: int | None) -> UnknownMoment:
    return UnknownMoment(f"turn {turn} of {address} is not kept any more: its older history was dropped")


def _start(store: EventRecords, branch_id: BranchId, turn: int | None) -> Replay:
    """Return a replay from the newest snapshot not after ``turn``, or an empty one."""
    snapshot = store.snapshot(branch_id)
    while snapshot is not None:
        replay = Replay.from_snapshot(snapshot)
        if turn is None or replay.turn <= turn:
            return replay
        snapshot = store.snapshot(branch_id, at_seq=snapshot.seq - 1) if snapshot.seq > 1 else None
    return Replay()


def trees_of(payload: Mapping[str, Json]) -> list[TreeRef]:
    """Return all trees that an event's payload names: `tree_of`, and those of attempts that were rolled back."""
    tree = tree_of(payload)
    given_up = (tree_of(keys) for keys in cast("list[dict[str, Json]]", payload.get("given_up") or []))
    return [found for found in (tree, *given_up) if found is not None]


def tree_of(payload: Mapping[str, Json]) -> TreeRef | None:
    """Return the tree that an event's payload names; ``None`` if it names none."""
    tree_id, oplog_id = payload.get("tree_id"), payload.get("oplog_id")
    if tree_id is None or oplog_id is None:
        return None
    return TreeRef(cast("BlobId", tree_id), cast("BlobId", oplog_id))
