"""The artifacts of an agent, and their content."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from coordinator.operations import objects
from coordinator.operations.cursors import place_after, rest_of
from podium.address import ALL_TENANTS, Address
from podium.agent_record import find_session, list_agents
from podium.artifacts.artifacts import find_artifact, list_artifacts
from podium.errors import UnknownArtifact
from podium.history.compare import lineage

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from podium.artifacts.artifacts import Artifact

__all__ = ["artifact_object", "artifact_of_agent", "artifact_of_tenant", "artifact_page"]


def artifact_page(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    turn: int | None = None,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> objects.Page[objects.Artifact]:
    """Return a page of an agent's artifacts up to a turn, oldest first, inherited ones included.

    Raises:
        UnknownAgent: there is no such agent.
        UnknownMoment: it has not committed that turn.
        InvalidCursor: it is of another list.
    """
    of = [str(address), str(turn)]
    after = place_after(cursor, "artifacts", of, 0)
    found = [artifact for artifact in list_artifacts(store, blobs, address, turn) if artifact.seq > after]
    return objects.Page(
        items=[artifact_object(artifact) for artifact in found[:limit]],
        **rest_of(found, limit, "artifacts", of, lambda artifact: artifact.seq),
    )


def artifact_of_agent(store: JournalStore, blobs: BlobReader, address: Address, artifact_id: str) -> Artifact:
    """Return an artifact of an agent, its own or an inherited one.

    Raises:
        UnknownAgent: there is no such agent.
        UnknownArtifact: it has no such artifact.
    """
    head = store.head(find_session(store, address).main_branch_id)
    owned = dict(lineage(store, head.branch_id, head.seq))
    with suppress(UnknownArtifact):  # that of another agent, erased or not, is answered as one that never was
        artifact = find_artifact(store, blobs, artifact_id)
        if artifact.seq <= owned.get(artifact.branch_id, 0):
            return artifact
    raise UnknownArtifact(f"no artifact {artifact_id} of {address}")


def artifact_of_tenant(
    store: JournalStore, blobs: BlobReader, artifact_id: str, *, tenant: str = ALL_TENANTS
) -> objects.FoundArtifact:
    """Return an artifact by its id alone, with an agent of the tenant that has it: the one that published it, if any.

    Args:
        tenant: ``*`` for an agent of any, which is named by its whole address.

    Raises:
        UnknownArtifact: no agent of the tenant has it.
    """
    of_all = tenant == ALL_TENANTS
    try:
        found = find_artifact(store, blobs, artifact_id)
    except UnknownArtifact:
        if of_all:
            raise
    else:
        owner = _owner(store, None if of_all else tenant, found)
        if owner is not None:
            return objects.FoundArtifact(agent=str(owner) if of_all else owner.name, artifact=artifact_object(found))
    raise UnknownArtifact(f"no artifact {artifact_id} of an agent")


def _owner(store: JournalStore, tenant: str | None, artifact: Artifact) -> Address | None:
    owner_id = store.branch(artifact.branch_id).session_id
    agents = list_agents(store)
    owner = next((session for session in agents if session.session_id == owner_id), None)
    if owner is not None:
        return Address.of(owner) if tenant in (None, owner.namespace) else None
    # The agent was deleted, or is that of an archive: others continue its history.
    for session in agents:
        if tenant in (None, session.namespace):
            head = store.head(session.main_branch_id)
            if artifact.seq <= dict(lineage(store, head.branch_id, head.seq)).get(artifact.branch_id, 0):
                return Address.of(session)
    return None


def artifact_object(found: Artifact) -> objects.Artifact:
    """Return an artifact as a JSON object."""
    return objects.Artifact(
        artifact_id=found.artifact_id,
        name=found.name,
        media_type=found.media_type,
        size=found.size_bytes,
        hash=found.content.id,
        branch=found.branch_id,
        seq=found.seq,
        turn=found.turn,
        timestamp=found.added_ms,
        message_id=found.message_id,
    )
