"""A bounded pool of connections to PostgreSQL, and the translation of its errors.

Transactions are ``READ COMMITTED`` and lock the rows whose values they rely on; :mod:`chronicle.journal.sql.port` has
the order. A forked child must not use a connection of its parent; it gets an error that says so.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import conninfo as libpq
from psycopg import errors, sql

from chronicle.errors import ChronicleError, Corrupt, InvalidInput, Unavailable
from chronicle.journal.postgres.schema import prepare
from chronicle.system.readiness import is_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chronicle.journal.postgres.schema import SchemaKind
    from chronicle.journal.sql.port import Connection, Cursor

__all__ = ["NOW_MS", "PostgresConnection", "PostgresDatabase", "check_server", "connect"]

NOW_MS: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT"
"""The server's time, epoch milliseconds."""

_WAIT_S: Final = 30.0
"""Timeout of the wait for a free connection."""
_CONNECTION_FAILED: Final = re.compile("^connection (is bad|failed): ")
"""What libpq says before it says the same."""
_ALIVE: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""libpq's parameters by which a server that is silent is noticed after 10 s, and one that is gone without a word after
25 s, unless the string has others."""
_ALIVE_THERE: Final = """
SET tcp_keepalives_idle TO 3; SET tcp_keepalives_interval TO 2; SET tcp_keepalives_count TO 3;
SET tcp_user_timeout TO 9000
"""
"""The same for the server, over TCP, after 9 s: it keeps the locks of a transaction whose machine has lost its power
for two hours otherwise, and whoever takes over the agents of that machine waits for them."""
_NAME_BYTES: Final = 63
"""The server cuts longer names, and would take two schemas for one (``NAMEDATALEN``)."""
_OLDEST_SERVER: Final = 14
"""The oldest major version that its makers still mend."""
_open_databases: Final[weakref.WeakSet[PostgresDatabase]] = weakref.WeakSet()
_inherited: Final[list[PostgresConnection]] = []
"""In a forked child: references to the parent's connections, so that garbage collection does not close them."""


def connect(conninfo: str, name: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a new connection, without a transaction.

    Args:
        conninfo: how to connect.
        name: of what is there, for messages.

    Raises:
        Unavailable: there is none, for a reason that may pass, or is in how to connect.
    """
    try:
        return psycopg.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        said = _CONNECTION_FAILED.sub("", str(error).strip().partition("\n")[0])
        raise Unavailable(
            f"{name} cannot be reached: {said}; check the journal's URL and password, and that its server runs"
        ) from error


def check_server(raw: psycopg.Connection[tuple[Any, ...]], conninfo: str, name: str) -> None:
    """Refuse a server that is too old, or a pooler that gives a connection's transactions to several sessions.

    Settings and prepared statements would be lost, or be those of another client. A pooler is known by the process id
    that it answers with, which is not the server's, and its way of pooling by a setting that another connection sees.

    Args:
        raw: a connection to it.
        conninfo: how another one is made.
        name: of what is there, for messages.

    Raises:
        InvalidInput: it is one of these.
        Unavailable: another connection cannot be made.
    """
    if raw.info.server_version < _OLDEST_SERVER * 10_000:
        raise InvalidInput(
            f"{name}: the server is PostgreSQL {raw.info.server_version // 10_000}; {_OLDEST_SERVER} or a newer one is "
            "needed"
        )
    row = raw.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] == raw.info.backend_pid:
        return
    raw.execute("SELECT set_config('chronicle.pooled', 'yes', false)")
    with connect(conninfo, name) as other:
        row = other.execute("SELECT current_setting('chronicle.pooled', true)").fetchone()
    if row is not None and row[0] == "yes":
        raise InvalidInput(
            f"{name} is reached through a pooler that gives sessions away after each transaction, which lose their "
            "settings: let it pool sessions (pool_mode = session), or connect to the server itself"
        )


class PostgresConnection:
    """A connection with the ``?`` placeholders of the shared SQL."""

    for_share: Final = " FOR SHARE"
    for_update: Final = " FOR UPDATE"

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw
        self._statements: dict[str, bytes] = {}
        self._pipeline: psycopg.Pipeline | None = None

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        """Run a statement."""
        known = self._statements.get(statement)
        if known is None:
            known = self._statements[statement] = statement.replace("?", "%s").encode()
        return self.raw.execute(known, values)

    def insert(self, statement: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Run an ``INSERT`` for each row."""
        for row in rows:
            self.execute(statement, row)

    def changed(self, statement: str, values: Sequence[Any], /) -> int:
        """Run an ``UPDATE``, and wait for the number of changed rows."""
        (count,) = self.changed_by_each([(statement, values)])
        return count

    def changed_by_each(self, updates: Sequence[tuple[str, Sequence[Any]]], /) -> list[int]:
        """Run several, and wait for the number of rows that each has changed."""
        cursors = [self.execute(f"{statement} RETURNING 1", values) for statement, values in updates]
        return [len(cursor.fetchall()) for cursor in cursors]

    def now_ms(self, given_ms: int) -> int:  # noqa: ARG002  the clocks of machines differ
        """Return the server's time."""
        now: int = self.execute(NOW_MS).fetchone()[0]
        return now

    def wait(self) -> None:
        """Wait for the answers to all earlier statements."""
        self.execute("SELECT 1").fetchone()

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        """Send statements without a wait for the answers to those before."""
        try:
            with self.raw.pipeline() as self._pipeline:
                try:
                    yield
                except BaseException:
                    self.resume()
                    raise
        except psycopg.Error:
            self._stop_preparing()
            raise

    def resume(self) -> None:
        """Wait for all statements of the pipeline; if one failed, ignore it, and let the server run the next ones.

        After a failure, the server skips what follows in the pipeline until a sync, even a rollback.

        Raises:
            psycopg.Error: the connection is lost.
        """
        assert self._pipeline is not None, "only inside `pipelined`"
        failed = self._pipeline.status == psycopg.pq.PipelineStatus.ABORTED
        while True:
            try:
                self._pipeline.sync()
            except psycopg.Error:  # of the failed statement, or of one that was skipped
                if self.raw.closed:
                    raise
                failed = True
            else:
                break
        if failed:
            self._stop_preparing()

    def _stop_preparing(self) -> None:
        """Use no prepared statement from now on, and no longer than the transaction: `is_reusable` is false.

        When the server skips the preparation of a statement, psycopg takes it for prepared, for as long as it is
        connected.
        """
        self.raw.prepare_threshold = None

    def is_reusable(self) -> bool:
        """Whether the next transaction may use it: nothing failed on it, and the server has not closed it meanwhile."""
        raw = self.raw
        if raw.closed or raw.prepare_threshold is None:
            return False
        if raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return False
        return not is_readable(raw.fileno())


class PostgresDatabase:
    """A schema of a kind in a PostgreSQL database; see `chronicle.journal.postgres.store` for the other arguments.

    A database that is not used any more closes its connections.
    """

    def __init__(
        self,
        conninfo: str,
        schema: str,
        kind: SchemaKind,
        connections: int,
        *,
        create: bool = True,
        read_only: bool = False,
        may_migrate: Callable[[], bool] = lambda: True,
    ) -> None:
        try:
            parts = libpq.conninfo_to_dict(conninfo)
        except psycopg.Error as error:
            raise InvalidInput(f"not a PostgreSQL connection string: {error}") from error
        size = len(schema.encode())
        if size > _NAME_BYTES:
            raise InvalidInput(
                f"the name of schema {schema} has {size} bytes, and the server keeps {_NAME_BYTES}; give a shorter one "
                "(?schema=NAME)"
            )
        self._conninfo = libpq.make_conninfo(conninfo, **{name: _ALIVE[name] for name in _ALIVE.keys() - parts.keys()})
        self._schema = schema
        self._read_only = read_only
        self.place = f"{parts.get('host', 'local')}/{parts.get('dbname', '')} schema {schema}"
        """Where it is, without the password."""
        self.name = f"{kind.content} in {self.place}"
        self._pid = os.getpid()
        self._closed = False
        self._free = threading.BoundedSemaphore(connections)
        self._idle: deque[PostgresConnection] = deque()
        try:
            with self._lent() as db:
                check_server(db.raw, self._conninfo, self.name)
                self.version = prepare(
                    db.raw, schema, kind, create=create, may_change=not read_only, may_migrate=may_migrate
                )
                """The version of the schema when it was opened."""
        except BaseException:
            self.close()
            raise
        _open_databases.add(self)
        weakref.finalize(self, _close_all, self._idle, self._pid)

    @contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        """Lend a connection for reads; each statement sees the last commit before it."""
        with self._lent() as db:
            yield db

    @contextmanager
    def reading_one_moment(self) -> Iterator[PostgresConnection]:
        """Lend a connection on which all statements see the same commit."""
        with self._lent() as db:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield db
            finally:
                if not db.raw.broken:
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[PostgresConnection]:
        """Lend a connection in a write transaction: durable on exit, rolled back on an error.

        Statements are pipelined: the client waits for answers only when it fetches rows. An error of an earlier
        statement is raised there, or at the end, where it prevents the commit.
        """
        with self._lent() as db:
            try:
                with db.pipelined():
                    db.execute("BEGIN")
                    yield db
                    db.execute("COMMIT")
            except BaseException:
                if not db.raw.broken:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def erasing(self) -> Iterator[PostgresConnection]:
        """As `writing`: the server reuses the space of deleted rows."""
        with self.writing() as db:
            yield db

    @contextmanager
    def savepoint(self, db: Connection) -> Iterator[None]:
        """Open a savepoint: a failure inside rolls back to it, and the transaction continues."""
        assert isinstance(db, PostgresConnection), "`writing` lends no other"
        db.execute("SAVEPOINT part")
        try:
            with self._translated():
                yield
                db.wait()
        except Unavailable:
            raise  # the connection is lost, and the transaction with it
        except BaseException:
            db.resume()
            db.execute("ROLLBACK TO part")
            db.execute("RELEASE part")
            raise
        db.execute("RELEASE part")

    def close(self) -> None:
        """Close all idle connections; lent ones are closed when they are returned."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        _close_all(self._idle, self._pid)

    @contextmanager
    def _lent(self) -> Iterator[PostgresConnection]:
        self._check_open()
        if not self._free.acquire(timeout=_WAIT_S):
            raise Unavailable(f"no connection to {self.name} became free in {_WAIT_S:.0f} s")
        try:
            with self._translated():
                db = self._connection()
                try:
                    yield db
                finally:
                    self._give_back(db)
        finally:
            self._free.release()

    def _connection(self) -> PostgresConnection:
        while self._idle:
            db = self._idle.pop()
            if db.is_reusable():
                return db
            db.raw.close()
        raw = connect(self._conninfo, self.name)
        raw.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        raw.execute("SET synchronous_commit TO on")
        raw.execute(_ALIVE_THERE)
        if self._read_only:
            raw.execute("SET default_transaction_read_only TO on")
        return PostgresConnection(raw)

    def _give_back(self, db: PostgresConnection) -> None:
        if self._closed or not db.is_reusable():
            db.raw.close()
        else:
            self._idle.append(db)

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise Unavailable(f"{self.name} was opened before a fork; open it again in the child")
        if self._closed:
            raise Unavailable(f"{self.name} was closed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._translate(error) from error
        except UnicodeEncodeError as error:
            raise InvalidInput(f"a value cannot be stored: {error}") from error

    def _translate(self, error: psycopg.Error) -> ChronicleError:
        said = str(error).strip().partition("\n")[0]
        match error:
            case errors.ReadOnlySqlTransaction():
                return InvalidInput(f"{self.name} was opened for reading only")
            case errors.UniqueViolation():
                return InvalidInput(f"an id was used before: {said}")
            case errors.UndefinedTable() | errors.UndefinedColumn() | errors.DataCorrupted() | errors.IndexCorrupted():
                return Corrupt(f"{self.name} is damaged: {said}")
            case errors.DiskFull():
                return Unavailable(
                    f"{self.name}: the disk of its server is full: make room on it, and what waits goes on; nothing "
                    f"was written ({said})"
                )
            case psycopg.DataError():
                return InvalidInput(f"a value cannot be stored: {said}")
            case psycopg.ProgrammingError() if error.sqlstate is None:  # not the server's: of a value of no type of its
                return InvalidInput(f"a value cannot be stored: {said}")
            case _:
                return Unavailable(f"{self.name}: {said}")

    def _leave_to_parent(self) -> None:
        _inherited.extend(self._idle)


def _close_all(connections: deque[PostgresConnection], pid: int) -> None:
    """Close connections, unless a forked child has them from its parent."""
    while connections and os.getpid() == pid:
        connections.pop().raw.close()


def _leave_all_to_parent() -> None:
    for database in list(_open_databases):
        database._leave_to_parent()  # noqa: SLF001 - the hook is this module's own


os.register_at_fork(after_in_child=_leave_all_to_parent)
