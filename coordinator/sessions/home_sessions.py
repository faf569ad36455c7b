"""`HomeSessions`: everything that a client may do with the sessions of its tenant.

Reads and writes run in threads. A call whose caller is cancelled may have happened; each write is atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakValueDictionary

from cachetools import LRUCache

from chronicle.canonical import encode
from chronicle.errors import BranchVersionConflict
from chronicle.ids import BranchId, EventId, IdSource
from coordinator.sessions import artifacts, branches, bundles, events, sessions
from coordinator.sessions.append_queue import AppendQueue
from coordinator.sessions.finding import find_branch, find_session
from coordinator.sessions.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from coordinator.operations.agents import HomeAgents
    from coordinator.sessions import objects
    from coordinator.sessions.artifacts import NewArtifact
    from coordinator.sessions.bundles import BundleItem
    from coordinator.sessions.events import NewEvent

__all__ = ["HomeSessions"]

_KNOWN_HEADS: Final = 4096


class HomeSessions:
    """The sessions of a home. No call reaches those of another tenant than the given one.

    Every call raises `Unavailable` if a store cannot be reached.

    Args:
        home: whose stores, quotas and clock are used; the caller closes it.
    """

    def __init__(self, home: HomeAgents) -> None:
        self._home = home
        self._ids = IdSource()
        self._lines: WeakValueDictionary[str, AppendQueue] = WeakValueDictionary()
        """By branch."""
        self._heads: LRUCache[tuple[str, str, str], tuple[int, EventId]] = LRUCache(_KNOWN_HEADS)
        """By tenant, session and branch: version and head after the latest append seen here. Versions only grow."""

    def _request(self, tenant: str, key: str | None) -> WriteRequest:
        return WriteRequest(tenant, key, self._ids, self._now_ms(), self._home.quotas.check_record)

    def _now_ms(self) -> int:
        return self._home.clock.now_ms()

    # -- sessions and branches ------------------------------------------------------------------------------------

    async def create(
        self,
        tenant: str,
        base_bundle_ids: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> objects.SessionObject:
        """Open a session; see `sessions.create_session`."""
        now_ms = self._now_ms()
        return await self._home.stores.write(
            sessions.create_session,
            tenant,
            base_bundle_ids,
            metadata or {},
            key,
            self._ids,
            now_ms,
            self._home.quotas.check_record,
        )

    async def session(self, tenant: str, session_id: str, agent: str | None = None) -> objects.SessionObject:
        """Return a session.

        Args:
            agent: the only agent whose session the caller may see.

        Raises:
            UnknownSession: there is none.
        """
        return await self._home.stores.read(
            lambda store, blobs: sessions.session_object(store, blobs, find_session(store, tenant, session_id, agent))
        )

    async def page(
        self, tenant: str, kind: Literal["client", "agent"] | None, limit: int, cursor: str | None
    ) -> objects.SessionPage:
        """Return a page of sessions; see `sessions.session_page`."""
        return await self._home.stores.read(sessions.session_page, tenant, kind, limit, cursor)

    async def delete(self, tenant: str, session_id: str) -> objects.DeletedSession:
        """Delete a session of a client; see `sessions.delete_session`."""
        now_ms = self._now_ms()
        deleted = await self._home.stores.write(
            lambda store, _: sessions.delete_session(store, tenant, session_id, now_ms)
        )
        for place in [place for place in self._heads if place[:2] == (tenant, session_id)]:
            del self._heads[place]
        return deleted

    async def branch(
        self, tenant: str, session_id: str, branch_id: str, agent: str | None = None
    ) -> objects.BranchObject:
        """Return a branch at its present position.

        Raises:
            UnknownSession, UnknownBranch: there is none.
        """

        def found(store: Any, _: Any) -> objects.BranchObject:
            session = find_session(store, tenant, session_id, agent)
            return branches.branch_object(session, find_branch(store, session, branch_id))

        return await self._home.stores.read(found)

    async def branches(
        self, tenant: str, session_id: str, limit: int, cursor: str | None, agent: str | None = None
    ) -> objects.BranchPage:
        """Return a page of a session's branches; see `branches.branch_page`."""
        return await self._home.stores.read(
            lambda store, _: branches.branch_page(store, find_session(store, tenant, session_id, agent), limit, cursor)
        )

    async def fork(
        self,
        tenant: str,
        session_id: str,
        from_branch_id: str,
        from_event_id: str | None = None,
        key: str | None = None,
    ) -> objects.BranchObject:
        """Fork a branch; see `branches.fork_branch`."""
        request = self._request(tenant, key)
        return await self._home.stores.write(branches.fork_branch, request, session_id, from_branch_id, from_event_id)

    # -- events ---------------------------------------------------------------------------------------------------

    async def append(
        self, tenant: str, session_id: str, branch_id: str, new: NewEvent, key: str | None = None
    ) -> objects.SessionEventObject:
        """Append an event; see `events.append_event`."""
        place = (tenant, session_id, branch_id)
        line = self._lines.setdefault(branch_id, AppendQueue())
        try:
            async with line.appending:
                known = self._heads.get(place)
                if known is not None and key is None and new.expected_version < known[0]:
                    new.check()
                    raise BranchVersionConflict(BranchId(branch_id), *known)
                request = self._request(tenant, key)
                made = await self._home.stores.write(events.append_event, request, session_id, branch_id, new)
                if self._know(place, made["sequence"], EventId(made["id"])):  # not so for a repeat
                    line.appended()
        except BranchVersionConflict as conflict:
            if new.expected_version >= conflict.version or conflict.head_event_id is None:  # it was not outrun
                raise
            self._know(place, conflict.version, conflict.head_event_id)
            await line.refused()
            raise BranchVersionConflict(
                conflict.branch_id, *self._heads.get(place, (conflict.version, conflict.head_event_id))
            ) from None
        await line.succeeded()
        return made

    def _know(self, place: tuple[str, str, str], version: int, head: EventId) -> bool:
        """Remember where a branch is; return whether it is further than was known."""
        known = self._heads.get(place)
        if known is not None and version <= known[0]:
            return False
        self._heads[place] = version, head
        return True

    async def events(
        self,
        tenant: str,
        session_id: str,
        branch_id: str,
        after: int,
        limit: int,
        cursor: str | None,
        agent: str | None = None,
    ) -> objects.SessionEventPage:
        """Return a page of a branch's events; see `events.event_page`."""

        def page(store: Any, blobs: Any) -> objects.SessionEventPage:
            session = find_session(store, tenant, session_id, agent)
            return events.event_page(
                store, blobs, session, find_branch(store, session, branch_id), after, limit, cursor
            )

        return await self._home.stores.read(page)

    # -- artifacts and bundles ------------------------------------------------------------------------------------

    async def create_artifact(
        self, tenant: str, new: NewArtifact, key: str | None = None
    ) -> objects.StoredArtifactObject:
        """Store an artifact; see `artifacts.create_artifact`.

        Raises:
            QuotaExceeded: the tenant has as many bytes as it may have.
        """
        now_ms = self._now_ms()
        data = new.data()

        def repeated(store: JournalStore, blobs: BlobReader) -> objects.StoredArtifactObject | None:
            there = artifacts.repeated_artifact(store, tenant, new, data, key)
            return None if there is None else artifacts.artifact_object(there, blobs, with_content=True)

        # Before the quota, which a repeat does not use.
        if key is not None and (there := await self._home.stores.read(repeated)) is not None:
            return there
        await self._home.quotas.check(
            lambda quotas: quotas.check_record(tenant, len(data) + len(encode(new.metadata or {})))
        )
        return await self._home.stores.write(artifacts.create_artifact, tenant, new, data, key, self._ids, now_ms)

    async def artifact(self, tenant: str, artifact_id: str) -> objects.StoredArtifactObject:
        """Return an artifact with its content.

        Raises:
            UnknownSessionArtifact: there is none.
        """
        now_ms = self._now_ms()
        return await self._home.stores.read(
            lambda store, blobs: artifacts.artifact_object(
                artifacts.find_artifact(store, tenant, artifact_id, now_ms), blobs, with_content=True
            )
        )

    async def artifacts(self, tenant: str, limit: int, cursor: str | None) -> objects.StoredArtifactPage:
        """Return a page of artifacts; see `artifacts.artifact_page`."""
        now_ms = self._now_ms()
        return await self._home.stores.read(artifacts.artifact_page, tenant, limit, cursor, now_ms)

    async def delete_artifact(self, tenant: str, artifact_id: str) -> objects.DeletedArtifact:
        """Delete an artifact; see `artifacts.delete_artifact`."""
        now_ms = self._now_ms()
        return await self._home.stores.write(
            lambda store, _: artifacts.delete_artifact(store, tenant, artifact_id, now_ms)
        )

    async def create_bundle(
        self, tenant: str, items: Sequence[BundleItem], metadata: dict[str, Any] | None = None, key: str | None = None
    ) -> objects.BundleObject:
        """Make a bundle; see `bundles.prepare_bundle`.

        Raises:
            QuotaExceeded: the tenant has as many bytes as it may have.
        """
        now_ms = self._now_ms()

        def prepared(store: JournalStore, blobs: BlobReader) -> bundles.CompiledBundle | objects.BundleObject:
            new = bundles.prepare_bundle(store, blobs, tenant, items, metadata or {}, key, now_ms)
            return (
                new
                if isinstance(new, bundles.CompiledBundle)
                else bundles.bundle_object(new, blobs, with_content=False)
            )

        new = await self._home.stores.read(prepared)
        if not isinstance(new, bundles.CompiledBundle):
            return new
        await self._home.quotas.check(
            lambda quotas: quotas.check_record(tenant, len(new.compiled) + len(encode(metadata or {})))
        )
        return await self._home.stores.write(bundles.create_bundle, tenant, new, self._ids, now_ms)

    async def bundle(self, tenant: str, bundle_id: str) -> objects.BundleObject:
        """Return a bundle with its content.

        Raises:
            UnknownBundle: there is none.
        """
        return await self._home.stores.read(
            lambda store, blobs: bundles.bundle_object(
                bundles.find_bundle(store, tenant, bundle_id), blobs, with_content=True
            )
        )

    async def bundles(self, tenant: str, limit: int, cursor: str | None) -> objects.BundlePage:
        """Return a page of bundles; see `bundles.bundle_page`."""
        return await self._home.stores.read(bundles.bundle_page, tenant, limit, cursor)
