"""`PostgresHomeRecords`: the records of a home in PostgreSQL."""

from __future__ import annotations

import hashlib
import socket
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from chronicle.errors import Corrupt, NotFound, OlderFormat, OlderVersionRuns
from chronicle.journal.postgres.session_lock import SessionLock
from coordinator.access.keys import damage_of_id
from coordinator.homes.identity import identity_part
from coordinator.homes.postgres.collection_lease import PostgresCollectionLease
from coordinator.homes.postgres.database import PostgresRecordsDatabase, open_schema
from coordinator.homes.postgres.documents import PostgresDocuments
from coordinator.homes.postgres.generation import PostgresGeneration
from coordinator.homes.postgres.node_roots import PostgresNodeRoots
from coordinator.homes.records import Part
from coordinator.homes.sql.calls import SqlCallLog, SqlCallRecords, read_calls
from coordinator.homes.sql.keys import SqlKeyRecords, read_keys
from coordinator.homes.sql.receiving import receive_records
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from chronicle.journal.postgres.database import PostgresDatabase
    from coordinator.access.quotas import Quota
    from coordinator.homes.records import HomeRecords

__all__ = ["PostgresHomeRecords"]


class PostgresHomeRecords:
    """`coordinator.homes.records.HomeRecords` in the schema of a PostgreSQL database, whose connections they share.

    Args:
        conninfo: how to connect to the database.
        schema: the schema of the records.
        home_id: returns the id of the home.
        directory: the home's directory on this machine.
        create: create the schema if it does not exist: the home is new there.

    Opening a part also raises `NotFound` if the schema does not exist, and `HomeError` if it has an older format that
    has to be upgraded first.
    """

    def __init__(
        self, conninfo: str, schema: str, home_id: Callable[[], str], directory: Path, *, create: bool = False
    ) -> None:
        self._directory = directory
        self._create = create
        self._conninfo = conninfo
        self._schema_name = schema
        self._home_id = home_id

    @cached_property
    def _schema(self) -> PostgresDatabase:
        try:
            return open_schema(self._conninfo, self._schema_name, create=self._create)
        except OlderVersionRuns as error:
            raise HomeError(f"{error}: podium upgrade does that") from error

    @cached_property
    def _database(self) -> PostgresRecordsDatabase:
        return PostgresRecordsDatabase(self._schema, is_counted=True)

    @cached_property
    def _of_calls(self) -> PostgresRecordsDatabase:
        return PostgresRecordsDatabase(self._schema, is_counted=False)

    def keys(self) -> SqlKeyRecords:
        """See `HomeRecords`."""
        return SqlKeyRecords(self._database, self._home_id())

    def quotas(self) -> SqlKeyRecords | None:
        """See `HomeRecords`."""
        return self.keys() if self._database.changes() else None

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """See `HomeRecords`."""
        if quotas or self._database.changes():
            self.keys().set_quotas(quotas)

    def calls(self) -> SqlCallRecords:
        """See `HomeRecords`."""
        return SqlCallRecords(self._of_calls)

    def call_log(self) -> SqlCallLog:
        """See `HomeRecords`."""
        return SqlCallLog(self._of_calls.reading)

    def documents(self) -> PostgresDocuments:
        """See `HomeRecords`."""
        return PostgresDocuments(self._schema)

    def service_claim(self) -> PostgresServiceClaim:
        """See `HomeRecords`."""
        place = f"{socket.gethostname()}:{self._directory}"
        digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:8]  # the server shortens names
        holder = f"podium {digest} on {place}"
        return PostgresServiceClaim(SessionLock(self._conninfo, f"{self._schema_name} service", holder))

    def generation_watch(self) -> PostgresGeneration:
        """See `HomeRecords`."""
        return PostgresGeneration(self._schema, self._directory)

    def collection_lease(self) -> PostgresCollectionLease:
        """See `HomeRecords`."""
        return PostgresCollectionLease(self._schema, self._directory)

    def node_roots(self) -> PostgresNodeRoots:
        """See `HomeRecords`."""
        return PostgresNodeRoots(self._schema, self._directory)

    def damage(self) -> dict[str, str]:
        """See `HomeRecords`. That pages have a wrong checksum is told by the journal, of the whole database."""
        try:
            with self._database.reading() as db:
                keys = read_keys(db)
                read_calls(db)
                db.execute("SELECT name, data FROM document").fetchall()
        except (Corrupt, NotFound, ValueError, KeyError, TypeError) as error:
            return {"records": str(error) or type(error).__name__}
        return damage_of_id(self._home_id(), keys)

    def parts(self) -> list[Part]:
        """See `HomeRecords`."""
        try:
            schema = open_schema(self._conninfo, self._schema_name, read_only=True)
        except OlderFormat as older:
            place = f"schema {self._schema_name}"
            return [Part("records", place, older.found, older.newer, is_additive=older.is_additive)]
        with closing(schema):
            return [Part("records", schema.place, schema.version), *identity_part(PostgresDocuments(schema))]

    def upgrade(self, may_migrate: Callable[[], bool]) -> None:
        """See `HomeRecords`."""
        open_schema(self._conninfo, self._schema_name, may_migrate=may_migrate).close()

    def receive(self, source: HomeRecords) -> None:
        """See `HomeRecords`."""
        receive_records(self, source)


class PostgresServiceClaim:
    """`coordinator.homes.records.ServiceClaim` by a lock of the server.

    Args:
        lock: the lock.
    """

    def __init__(self, lock: SessionLock) -> None:
        self._lock = lock

    def hold(self) -> None:
        """See `ServiceClaim`."""
        holder = self._lock.hold()
        if holder is not None:
            raise HomeError(f"another service has this home, {holder}: end that one first (podium down)")

    def release(self) -> None:
        """See `ServiceClaim`."""
        self._lock.release()
