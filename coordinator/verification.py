"""Verification of stored agents, from their events down to the last byte of their files.

For each session it checks the journal (:mod:`chronicle.journal.verify`), every blob reachable from the trees, histories
and artifacts of its turns, failed attempts included, and that snapshots give the same state as the events. The objects
beside the events, such as artifacts of clients and deploys, are checked down to their blobs. Of the packs that have the
blobs, it checks the indexes by which the blobs are found if the store's own index is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs.pack_checker import PackChecker
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt, InvalidInput, NotFound, UnsupportedFormat
from chronicle.journal.objects import object_body
from chronicle.journal.payloads import payload_of
from chronicle.journal.verify import verify_session
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.trees.tree import EMPTY
from podium.address import Address, label
from podium.agent_record import Replay, read_agent, retry_if_folded, trees_of
from podium.artifacts.artifacts import contents_of
from podium.code.deploys import DEPLOY, deploy_of, kept_bundles
from podium.code.manifest import read_manifest
from podium.errors import InvalidAddress
from podium.events import FULL_STATE_EVENTS, STATE_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import BlobId, BranchId
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event, Session

__all__ = ["OBJECTS", "SessionCheck", "Verifier"]

OBJECTS: Final = "objects"
"""The name of the check of the objects beside the events."""
_AHEAD: Final = 32
"""Events whose trees are read ahead together: those of some ten turns."""


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """The result of the check of one session."""

    name: str
    events: int
    blobs: int
    """Blobs read for this session; blobs already read for an earlier session are not counted."""
    problem: str | None
    """The first damage found; ``None`` if the session is intact. Damage of a pack whose blobs themselves are sound
    comes last, and is reported for the session for which the pack was read first."""
    cause: Exception | None = None
    """The error that ended the check, if an error did."""


class Verifier:
    """Checks the sessions of one home, one at a time.

    Args:
        store: the journal.
        blobs: the home's blob store; one of packs is opened without this node's cache, which would hide its damage.
    """

    def __init__(self, store: JournalStore, blobs: BlobStore) -> None:
        self._store = store
        packs = blobs if isinstance(blobs, PackBlobStore) else None
        self._packs = PackChecker(packs) if packs is not None else None
        self._reads_ahead = packs is not None and packs.is_far
        self._blobs: BlobReader = self._packs or blobs
        self._trees = TreeChecker(self._blobs)

    def check(self, session: Session) -> SessionCheck:
        """Check a session; damage is returned, not raised.

        Raises:
            Unavailable: a store could not be read.
        """
        report = verify_session(self._store, session)
        if report.damage is not None:
            return SessionCheck(label(session), report.events, 0, str(report.damage))
        before = self._trees.blobs
        cause: Corrupt | NotFound | UnsupportedFormat | None = None
        try:
            for branch in self._store.branches(session.session_id):
                self._check_branch(session, branch.branch_id)
        except (Corrupt, NotFound, UnsupportedFormat) as error:
            cause = error
        blobs = self._trees.blobs - before
        if cause is None:
            return SessionCheck(label(session), report.events, blobs, self._pack_problem())
        self._trees = TreeChecker(self._blobs)
        return SessionCheck(label(session), report.events, blobs, str(cause), cause)

    def check_objects(self) -> SessionCheck | None:
        """Check the objects of all sessions and tenants; return ``None`` if there are none. Damage is not raised.

        Raises:
            Unavailable: a store could not be read.
        """
        there, read, problem, cause = False, 0, None, None
        for each in self._store.all_objects():
            there = True
            try:
                object_body(each, self._blobs)
                read += each.body_ref is not None
                if each.content is not None:
                    self._blobs.get(each.content)
                    read += 1
                if each.kind == DEPLOY:
                    read += self._check_bundle(each)
            except (Corrupt, NotFound) as error:
                problem, cause = f"{each.kind} {each.object_id} of {each.namespace}: {error}", error
                break
        return SessionCheck(OBJECTS, 0, read, problem or self._pack_problem(), cause) if there else None

    def check_other_packs(self) -> str | None:
        """Return the damage of packs from which no check has read; ``None`` if there is none.

        Raises:
            Unavailable: the store could not be read.
        """
        if self._packs is not None:
            self._packs.check_others()
        return self._pack_problem()

    def _check_bundle(self, found: StoredObject) -> int:
        """Check the bundle of a deploy if it is kept; return the number of its blobs."""
        bundle = deploy_of(found).bundle
        if bundle is None or bundle not in kept_bundles(self._store):
            return 0
        files = read_manifest(self._blobs, bundle).blobs
        for blob in files:
            self._blobs.get(blob)
        return 1 + len(files)

    def _pack_problem(self) -> str | None:
        return self._packs.problem() if self._packs is not None else None

    def _check_branch(self, session: Session, branch_id: BranchId) -> None:
        replay = retry_if_folded(self._store, branch_id, lambda: self._replayed(branch_id))
        if branch_id == session.main_branch_id and replay.state is not None:
            self._check_snapshots(session, replay)

    def _replayed(self, branch_id: BranchId) -> Replay:
        """Check the blobs of a branch's events, and that each full state equals the replay of the events before it."""
        replay = Replay()
        for event in self._fetched(self._store.events(branch_id)):
            self._check_blobs(event)
            if event.type in STATE_EVENTS and not event.erased:
                before, config = replay.state, replay.config
                replay.apply(event, self._blobs)
                if event.type not in FULL_STATE_EVENTS or before is None:
                    continue
                if encode(before) != encode(replay.state) or config != replay.config:
                    raise Corrupt(f"seq {event.seq} ({event.event_id}): {event.type} has another state than the events")
        return replay

    def _fetched(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield the events, with what the next ones reference read ahead: several packs at a time."""
        while some := list(islice(events, _AHEAD)):
            if self._packs is not None and self._reads_ahead:
                self._packs.fetch([blob for event in some for blob in _roots_of(event)])
            yield from some

    def _check_blobs(self, event: Event) -> None:
        where = f"seq {event.seq} ({event.event_id}), {event.type} of turn {event.turn}"
        try:
            self._check_payload(event)
        except (Corrupt, NotFound) as error:
            raise Corrupt(f"{where}: {error}") from error

    def _check_payload(self, event: Event) -> None:
        """Read all blobs that an event's payload references, the payload itself included if it is stored as a blob."""
        if event.erased:
            return
        payload = payload_of(event, self._blobs)
        for ref in trees_of(payload) if "." in event.type and isinstance(payload, dict) else ():
            self._trees.check(ref)
        for content in contents_of(event, payload):
            self._trees.check_content(content, "its content")

    def _check_snapshots(self, session: Session, replay: Replay) -> None:
        try:
            address = Address.of(session)
        except InvalidAddress:  # not an agent's session: its snapshots are never read
            return
        found = read_agent(self._store, self._blobs, address, replay.turn)
        if found.state != replay.state or found.config != replay.config:
            raise Corrupt(f"the snapshot before seq {found.version_seq} gives another state than the events")


def _roots_of(event: Event) -> list[BlobId]:
    """Return the blob of an event's payload, or else those of the trees that the payload names."""
    if event.payload_ref is not None:
        return [event.payload_ref]
    if event.payload is None or "." not in event.type:
        return []
    try:
        payload = decode(event.payload)
    except InvalidInput:  # reported when the event is checked
        return []
    trees = trees_of(payload) if isinstance(payload, dict) else []
    return [blob for ref in trees for blob in (ref.tree_id, ref.oplog_id) if blob != EMPTY]
