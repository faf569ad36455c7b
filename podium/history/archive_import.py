"""Import of an agent from an archive.

Order: the whole archive is verified; its blobs are stored; then its branches are created, oldest first, each with all
of its events in one commit, and the agent's own last. So a crash leaves no agent visible, and the same import
continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, NotFound
from chronicle.journal.records import Commit
from podium.errors import AgentExists
from podium.history.branching import fork_at

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId, IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Branch, Head, Session
    from podium.address import Address
    from podium.history.archive import Archive, ArchivedBranch

__all__ = ["HOLDER_PREFIX", "Imported", "import_agent"]

HOLDER_PREFIX: Final = "imported:"
"""Name prefix of sessions that hold the inherited branches of an imported fork; no agent's address has it."""
_PACK_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    head: Head
    blobs: int
    """Blobs that the store did not have."""


def import_agent(
    store: JournalStore, blobs: BlobStore, archive: Archive, target: Address, ids: IdSource, now_ms: int
) -> Imported:
    """Create an agent from an archive.

    Branches keep their ids and events, so its head is the exported one. If this store has the agent's branch already,
    as on the machine of the export, the new agent is a fork of it.

    Raises:
        Corrupt: the archive is damaged; nothing was written.
        AgentExists: there is an agent of the target's address already; nothing was written.
        Conflict: this store has one of the branches up to an earlier event, or with other events, or in another tenant.
    """
    *ancestors, own = archive.manifest.branches
    _refuse_if_taken(store, target, own, archive.path)
    archive.check()
    present = [_present(store, archive, number, target) for number in range(len(archive.manifest.branches))]
    put = _put_blobs(blobs, archive)
    parent: Branch | None = None
    for number, branch in enumerate(ancestors):
        holder = (HOLDER_PREFIX + branch.branch_id, target.tenant)
        parent = present[number] or _make(store, archive, number, parent, holder, ids, now_ms)
    last = archive.manifest.head
    if present[-1] is not None:
        forked = fork_at(store, present[-1], last.seq, last.turn, archive.manifest.agent, target, ids, now_ms)
        return Imported(forked.head, put)
    own_names = (target.name, target.tenant)
    return Imported(_make(store, archive, len(ancestors), parent, own_names, ids, now_ms).head, put)


def _refuse_if_taken(store: JournalStore, target: Address, own: ArchivedBranch, archive: Path) -> None:
    try:
        session = store.session(target.name, target.tenant)
    except NotFound:
        return
    branch = store.branch(session.main_branch_id)
    if branch.branch_id != own.branch_id or branch.head.seq != own.after_seq:
        raise AgentExists(f"there is an agent {target} already; import it under another address", str(archive))


def _present(store: JournalStore, archive: Archive, number: int, target: Address) -> Branch | None:
    """Return a branch of the archive if the store has all of its events; ``None`` if it has none.

    Raises:
        Conflict: the store has some of them, or different ones, or the branch belongs to another tenant.
    """
    wanted = archive.manifest.branches[number]
    try:
        branch = store.branch(wanted.branch_id)
    except NotFound:
        return None
    with store.audit(branch.session_id) as owner:
        if owner.session.namespace != target.tenant:
            raise Conflict(
                f"this home has branch {branch.branch_id} of the archive in another tenant than {target.tenant}, and "
                "tenants share no history; import it into another home"
            )
    if branch.head.seq == wanted.after_seq:
        return None  # created by an import that crashed before it wrote the events
    *_, last = archive.events(number)
    found = next(store.events(branch.branch_id, wanted.to_seq - 1, wanted.to_seq), None)
    if found is None or found.hash != last.hash:
        raise Conflict(
            f"this home has branch {branch.branch_id} of the archive with other events, or not all of them; import it "
            "into another home"
        )
    return branch


def _make(
    store: JournalStore,
    archive: Archive,
    number: int,
    parent: Branch | None,
    names: tuple[str, str],
    ids: IdSource,
    now_ms: int,
) -> Branch:
    """Create a branch with its events and its session, and return it.

    Args:
        names: the session's name and namespace.
    """
    wanted = archive.manifest.branches[number]
    session = _session(store, archive, wanted, parent, names, ids, now_ms)
    if session.main_branch_id != wanted.branch_id:
        raise Conflict(f"a session named {names[0]!r} was created meanwhile; try again")
    events = tuple(archive.events(number))
    store.commit(Commit(session.session_id, store.head(wanted.branch_id), events, epoch=None))
    return store.branch(wanted.branch_id)


def _session(
    store: JournalStore,
    archive: Archive,
    wanted: ArchivedBranch,
    parent: Branch | None,
    names: tuple[str, str],
    ids: IdSource,
    now_ms: int,
) -> Session:
    session_id, base, (name, namespace) = ids.session(now_ms), archive.manifest.base, names
    try:
        if parent is not None:
            return store.fork_session(parent.branch_id, wanted.after_seq, name, session_id, wanted.branch_id, now_ms)
        if base is not None:
            return store.import_session(name, session_id, wanted.branch_id, base, now_ms, namespace)
        return store.ensure_session(name, session_id, wanted.branch_id, now_ms, namespace)
    except Conflict:
        return store.session(name, namespace)


def _put_blobs(blobs: BlobStore, archive: Archive) -> int:
    """Store the blobs that the store does not have, in packs, and return their number."""
    missing = sorted(blobs.missing(archive.blob_ids()))
    pack: dict[BlobId, bytes] = {}
    size = 0
    for identifier in missing:
        pack[identifier] = data = archive.get(identifier)
        size += len(data)
        if size >= _PACK_BYTES:
            blobs.put(pack)
            pack, size = {}, 0
    if pack:
        blobs.put(pack)
    return len(missing)
