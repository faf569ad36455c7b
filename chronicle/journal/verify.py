"""Verification: checks that a session's stored records are those that were written.

It reads the store's own tables (:meth:`~chronicle.journal.port.JournalStore.audit`), recomputes every hash and compares
events with their chain, heads with their last event, and branches with the session's catalogue. It detects a changed
byte in any column of an event, branch or session record; events that were removed, moved, inserted or truncated; and
branches that disappeared or appeared. A store that was rewritten consistently, including its hashes, is detected only
against a head that was kept elsewhere (`Anchor`).

Erased payloads and folded events are not damage: the chain covers their digests.

Records outside of the chain are not checked: inboxes, outboxes, leases, and snapshots, which are derived. For a SQLite
store `chronicle.journal.sqlite.health` checks them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from chronicle.error_pickling import Portable
from chronicle.errors import Corrupt, InvalidInput
from chronicle.ids import BranchId
from chronicle.journal.chain import HASH_PREFIX, catalogue_genesis, catalogue_hash, event_digest, genesis_hash
from chronicle.journal.records import BranchChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.audit import SessionAudit
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Branch, CatalogueEntry, Head, Session

__all__ = ["Anchor", "Damage", "Report", "verify_session"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A head that was kept outside of the store: the branch had an event with that hash at that seq."""

    branch_id: BranchId
    seq: int
    hash: str

    @classmethod
    def of(cls, head: Head) -> Anchor:
        """Return the anchor of a head."""
        return cls(head.branch_id, head.seq, head.hash)

    @classmethod
    def parse(cls, text: str) -> Anchor:
        """Parse the form that ``str`` returns: ``BRANCH:SEQ:HASH``.

        Raises:
            InvalidInput: it is not of that form.
        """
        branch_id, _, rest = text.partition(":")
        seq, _, digest = rest.partition(":")
        if not branch_id or not seq.isdecimal() or not digest.startswith(HASH_PREFIX):
            raise InvalidInput(f"{text!r} is not a head; it has the form BRANCH:SEQ:{HASH_PREFIX}HEX")
        return cls(BranchId(branch_id), int(seq), digest)

    def __str__(self) -> str:
        return f"{self.branch_id}:{self.seq}:{self.hash}"


@dataclass(frozen=True, slots=True)
class Damage:
    """The first damage found."""

    branch_id: BranchId | None
    """``None`` if the session's own record or catalogue is damaged."""
    seq: int | None
    """The first damaged event; ``None`` if the branch as a whole is damaged."""
    why: str

    def __str__(self) -> str:
        where = f"branch {self.branch_id}" if self.branch_id else "the session"
        return f"{where}{f', event {self.seq}' if self.seq is not None else ''}: {self.why}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verification."""

    session: Session
    branches: int
    """Number of branches checked, including branches of other sessions that forks continue."""
    events: int
    """Number of events checked."""
    damage: Damage | None

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return self.damage is None


class _Damaged(Portable):
    def __init__(self, branch_id: BranchId | None, seq: int | None, why: str) -> None:
        super().__init__(why)
        self.damage = Damage(branch_id, seq, why)


def verify_session(store: JournalStore, session: Session, against: Sequence[Anchor] = ()) -> Report:
    """Verify all records of a session, in one consistent read.

    Args:
        against: heads that were kept elsewhere; each must still be an event of its branch.

    Raises:
        NotFound: there is no such session.
        Unavailable: the store could not be read.
    """
    check = _Check(against=against)
    try:
        with store.audit(session.session_id) as audit:
            check.session(audit)
        damage = None
    except _Damaged as found:
        damage = found.damage
    except Corrupt as error:
        damage = Damage(check.at[0], check.at[1], str(error))
    return Report(session, len(check.hashes), check.events, damage)


@dataclass(slots=True)
class _Check:
    against: Sequence[Anchor]
    events: int = 0
    at: tuple[BranchId | None, int | None] = (None, None)
    hashes: dict[BranchId, dict[int, str]] = field(default_factory=dict)
    """By checked branch: the hashes at the seqs that forks or anchors refer to."""

    def session(self, audit: SessionAudit) -> None:
        alive = _catalogue(audit)
        branches = {branch.branch_id: branch for branch in audit.branches}
        for branch_id, line in alive.items():
            if branch_id not in branches:
                raise _Damaged(branch_id, None, "it was made, as the catalogue says, but it is not there")
            line.check(branches[branch_id])
        for branch_id in branches:
            if branch_id not in alive:
                raise _Damaged(branch_id, None, "it is there, but the catalogue does not have it")
        if audit.session.main_branch_id not in branches:
            raise _Damaged(audit.session.main_branch_id, None, "the session's main branch is not there")
        wanted = self._wanted(audit, branches)
        for branch_id, line in alive.items():
            if self._branch(audit, branches[branch_id], branches, wanted) != line.base_hash:
                raise _Damaged(branch_id, None, "it does not stand on the event that the catalogue says")
        self._anchors(audit, branches)

    def _wanted(self, audit: SessionAudit, branches: dict[BranchId, Branch]) -> dict[BranchId, set[int]]:
        """Return the seqs whose hashes are needed, by branch; adds the branches of other sessions to ``branches``."""
        wanted: dict[BranchId, set[int]] = {}
        for branch in list(branches.values()):
            while _reads_parent(branch):
                owner = _owner(audit, branches, branch, branch.parent_seq)
                wanted.setdefault(owner.branch_id, set()).add(branch.parent_seq)
                branch = owner  # noqa: PLW2901 - walk to the ancestors
        for anchor in self.against:
            if anchor.branch_id in branches and anchor.seq:
                owner = _owner(audit, branches, branches[anchor.branch_id], anchor.seq)
                if anchor.seq > _base_seq(owner):
                    wanted.setdefault(owner.branch_id, set()).add(anchor.seq)
        return wanted

    def _branch(
        self,
        audit: SessionAudit,
        branch: Branch,
        branches: dict[BranchId, Branch],
        wanted: dict[BranchId, set[int]],
    ) -> str:
        """Check a branch, after its ancestors, and return the hash before its first own event."""
        lineage: list[tuple[Branch, Branch | None]] = []
        following: Branch | None = branch
        while following is not None:
            owner = _owner(audit, branches, following, following.parent_seq) if _reads_parent(following) else None
            lineage.append((following, owner))
            following = owner
        base = ""
        for each, owner in reversed(lineage):
            self.at = (each.branch_id, None)
            stored = audit.base_hash(each.branch_id)
            if owner is not None:
                base = self.hashes[owner.branch_id][each.parent_seq]
            else:
                base = stored if each.folded_seq else genesis_hash(each.branch_id)
            if stored != base:
                raise _Damaged(each.branch_id, None, "its record has another hash before its first event")
            if each.branch_id not in self.hashes:
                foreign = each.session_id != audit.session.session_id
                self._events(audit, each, base, wanted.get(each.branch_id, set()), foreign=foreign)
        return base

    def _events(self, audit: SessionAudit, branch: Branch, base: str, wanted: set[int], *, foreign: bool) -> None:
        """Check a branch's own events; those of another session's branch as far as forks read it."""
        branch_id, head = branch.branch_id, branch.head
        hashes = self.hashes[branch_id] = {}
        last_seq = max(wanted) if foreign else None
        seq = at = first = _base_seq(branch)
        prev = base
        event_id, turn = "", 0
        self.at = (branch_id, None)
        try:
            for row in audit.rows(branch_id):
                at, event_id, kind, turn, ts, correlation_id, causation_id, ref, payload_sha256, payload, digest = row
                if payload is not None:
                    payload_hex = sha256(payload).hexdigest()
                    if payload_sha256 is not None and payload_sha256.hex() != payload_hex:
                        raise _Damaged(branch_id, at, "its payload does not have its SHA-256")
                else:
                    payload_hex = payload_sha256.hex() if payload_sha256 is not None else ""
                seq += 1
                hex_digest = event_digest(
                    branch_id, at, event_id, kind, turn, ts, payload_hex, ref, correlation_id, causation_id, prev
                )
                if at != seq:
                    raise _Damaged(branch_id, seq, f"missing: event {at} comes next" if at > seq else "out of order")
                prev = HASH_PREFIX + hex_digest
                if digest.hex() != hex_digest:
                    raise _Damaged(branch_id, seq, "changed, moved here, or not the one that followed the event before")
                if seq in wanted:
                    hashes[seq] = prev
                if seq == last_seq:
                    break
        except (AttributeError, TypeError, ValueError) as error:
            raise _Damaged(branch_id, at, f"a column holds a value of a wrong type: {error}") from error
        finally:
            self.at = (branch_id, seq + 1)  # the place of the damage if reading a row failed
            self.events += seq - first
        for missing in wanted - hashes.keys():
            raise _Damaged(branch_id, missing, "missing, and a fork or a kept head stands on it")
        if foreign:
            return
        if seq < head.seq:
            raise _Damaged(branch_id, seq + 1, f"missing: the branch was cut off; it has {head.seq} events")
        if seq > head.seq:
            raise _Damaged(branch_id, head.seq + 1, "it lies behind the branch's head")
        if prev != head.hash:
            raise _Damaged(branch_id, seq, "it is not the branch's head")
        if seq > first and (event_id, turn) != (head.event_id, head.turn):
            raise _Damaged(branch_id, seq, "the branch's head names another event or turn")

    def _anchors(self, audit: SessionAudit, branches: dict[BranchId, Branch]) -> None:
        for anchor in self.against:
            if anchor.branch_id not in branches:
                raise _Damaged(anchor.branch_id, None, "a head of it was kept, and it is not there")
            branch = branches[anchor.branch_id]
            if anchor.seq == 0:
                found = genesis_hash(branch.branch_id)
            else:
                owner = _owner(audit, branches, branch, anchor.seq)
                if anchor.seq < _base_seq(owner):
                    raise _Damaged(anchor.branch_id, anchor.seq, "a head was kept of it, and it was folded")
                at_base = anchor.seq == _base_seq(owner)
                found = audit.base_hash(owner.branch_id) if at_base else self.hashes[owner.branch_id][anchor.seq]
            if found != anchor.hash:
                raise _Damaged(anchor.branch_id, anchor.seq, "it is not the event of the head that was kept")


@dataclass(slots=True)
class _Line:
    """The catalogue's entries of an existing branch."""

    made: CatalogueEntry
    folded: CatalogueEntry | None = None

    @property
    def base_hash(self) -> str:
        """The hash before its first own event."""
        return self.folded.branch_hash if self.folded is not None else self.made.branch_hash

    def check(self, branch: Branch) -> None:
        """Compare the entries with the branch's record."""
        made, folded_seq = self.made, self.folded.seq if self.folded is not None else 0
        said = (made.parent_branch_id, made.seq, made.ts, folded_seq)
        if said != (branch.parent_branch_id, branch.parent_seq, branch.created_ms, branch.folded_seq):
            raise _Damaged(branch.branch_id, None, "its record is not what the catalogue says of it")


def _catalogue(audit: SessionAudit) -> dict[BranchId, _Line]:
    """Check the catalogue's chain and return its entries of the branches that must exist."""
    prev_hash = catalogue_genesis(audit.session)
    alive: dict[BranchId, _Line] = {}
    number = 0
    for entry in audit.catalogue:
        number += 1
        if entry.number != number:
            raise _Damaged(None, None, f"entry {number} of its catalogue of branches is missing")
        if entry.prev_hash != prev_hash or catalogue_hash(entry) != entry.hash:
            what = "its record or the first entry" if number == 1 else f"entry {number}"
            raise _Damaged(None, None, f"{what} of its catalogue of branches was changed")
        prev_hash = entry.hash
        if entry.change is BranchChange.CREATED:
            alive[entry.branch_id] = _Line(entry)
            continue
        line = alive.get(entry.branch_id)
        if line is None:
            raise _Damaged(entry.branch_id, None, f"the catalogue has it {entry.change}, but not made")
        if entry.change is BranchChange.FOLDED:
            line.folded = entry
        else:
            del alive[entry.branch_id]
    if (number, prev_hash) != audit.catalogue_head:
        raise _Damaged(None, None, f"its catalogue of branches was cut off after entry {number}")
    return alive


def _base_seq(branch: Branch) -> int:
    """Return the seq before a branch's first own event."""
    return max(branch.parent_seq, branch.folded_seq)


def _reads_parent(branch: Branch) -> bool:
    return branch.parent_branch_id is not None and branch.parent_seq > 0 and not branch.folded_seq


def _owner(audit: SessionAudit, branches: dict[BranchId, Branch], branch: Branch, seq: int) -> Branch:
    """Return the branch, or its ancestor, that owns the event at a seq, if any does."""
    while seq <= branch.parent_seq and branch.parent_branch_id is not None and not branch.folded_seq:
        parent = branches.get(branch.parent_branch_id) or audit.branch(branch.parent_branch_id)
        if parent is None:
            raise _Damaged(branch.branch_id, None, f"the branch {branch.parent_branch_id} that it continues is missing")
        branch = parent
    return branch
