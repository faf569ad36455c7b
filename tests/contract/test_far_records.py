"""Records in a database server that does not answer: the event loops of gateway, service and model gateway go on."""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock, SystemClock
from chronicle.ids import IdSource
from chronicle.journal.sqlite.store import SqliteJournalStore
from coordinator.access.caller import ExpiredKey, RevokedKey, Scope, UnknownKey
from coordinator.access.key_access import KeyAccess
from coordinator.access.quotas import Quota, QuotaExceeded, Quotas
from coordinator.access.stored_quotas import StoredQuotas
from coordinator.client_messages import Admission, Arrival
from coordinator.homes.postgres.records import PostgresHomeRecords
from coordinator.models.calls import CallRecord, ModelRequest
from coordinator.models.config_file import ConfigFile, store_config
from coordinator.models.gateway import ModelGateway
from coordinator.models.profiles import ModelsConfig, Profile
from coordinator.models.providers import Providers
from coordinator.service.group_admission import GroupAdmission
from podium.address import Address
from podium.turn.busy import BusyPolicy
from podium.turn.telemetry import NO_TRACER
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.access.records import KeyRecords


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    """The name of a schema of its own."""
    return f"keys_{abs(hash(request.node.nodeid))}"


@pytest.fixture
def records(server: str, schema: str) -> PostgresHomeRecords:
    """The records of a new home."""
    return PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/home"), create=True)


@contextmanager
def silent(server: str, schema: str, table: str = "changed") -> Iterator[None]:
    """Have the server not answer who asks for a table, that of changes by default, while the context lasts."""
    with psycopg.connect(server) as other:
        other.execute("SET idle_in_transaction_session_timeout = '30s'")  # a loop that it blocks goes on then
        other.execute(f"LOCK TABLE {schema}.{table} IN ACCESS EXCLUSIVE MODE")
        yield


async def waiting(server: str) -> None:
    """Wait until a session waits for a lock."""
    with psycopg.connect(server, autocommit=True) as other:
        count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await until(lambda: other.execute(count).fetchone() != (0,), "nobody waits")


def new_key(keys: KeyRecords, expires_ms: int | None = None) -> tuple[str, str]:
    """Return the id and the header of a new key."""
    key, text = keys.create("n", "acme", [Scope.READ], 1, expires_ms=expires_ms)
    return key.key_id, f"Bearer {text}"


async def test_requests_share_looks_at_the_server_and_wait_for_it_beside_the_loop(
    server: str, schema: str, records: PostgresHomeRecords
) -> None:
    keys = records.keys()
    access = KeyAccess(keys, SystemClock())
    made = [new_key(keys) for _ in range(8)]
    assert [(await access.authenticate(header)).key_id for _, header in made] == [key_id for key_id, _ in made]
    with silent(server, schema):
        asked = [asyncio.create_task(access.authenticate(header)) for _, header in made * 8]
        await waiting(server)
        assert not any(task.done() for task in asked)
    callers = await asyncio.gather(*asked)
    assert [caller.key_id for caller in callers] == [key_id for key_id, _ in made * 8]
    keys.revoke(made[0][0])
    answers = await asyncio.gather(*(access.authenticate(header) for _, header in made), return_exceptions=True)
    assert [isinstance(answer, UnknownKey) for answer in answers] == [True] + 7 * [False]
    await access.close()


async def test_streams_end_with_their_keys_once_the_server_answers_again(
    server: str, schema: str, records: PostgresHomeRecords
) -> None:
    keys, clock = records.keys(), ManualClock(1_000)
    access = KeyAccess(keys, clock)
    made = [new_key(keys), new_key(keys, expires_ms=5_000), new_key(keys)]
    callers = [await access.authenticate(header) for _, header in made]
    keys.revoke(made[2][0])
    with access.watch(callers[0]) as revoked, access.watch(callers[1]) as expired:
        with access.watch(callers[2]) as gone:
            assert isinstance(await gone, RevokedKey)  # the look that found it has read them all
        with silent(server, schema):
            await waiting(server)
            clock.advance(10)
            assert isinstance(await expired, ExpiredKey)
            assert not revoked.done()
        await asyncio.to_thread(keys.revoke, made[0][0])
        assert isinstance(await revoked, RevokedKey)
    with access.watch(callers[0]) as late:
        assert isinstance(await late, RevokedKey)
    await access.close()


async def test_messages_share_looks_at_quotas_beside_the_loop(
    server: str, schema: str, records: PostgresHomeRecords, tmp_path: Path
) -> None:
    records.set_quotas({"small": Quota(agents=1)})
    clock, blobs = SystemClock(), MemoryBlobStore()
    with closing(SqliteJournalStore(tmp_path / "journal.db")) as store, closing(StoredQuotas(records.quotas)) as limits:
        quotas = Quotas(limits, store, blobs, clock)
        admission = Admission(store, blobs, IdSource(), clock, 100, quotas.check)
        with closing(GroupAdmission(admission, quotas.limited)) as group:

            def admitting(agent: str, tenant: str) -> asyncio.Task[object]:
                arrival = Arrival(Address("note", agent, tenant), b"{}", None, BusyPolicy.ENQUEUE)
                return asyncio.create_task(group.admit(arrival))

            with silent(server, schema):
                asked = [admitting("one", "free"), admitting("one", "small"), admitting("two", "free")]
                await waiting(server)
                assert not any(task.done() for task in asked)
            await asyncio.gather(*asked)
            answers = await asyncio.gather(
                admitting("two", "small"), admitting("one", "small"), admitting("three", "free"), return_exceptions=True
            )
            assert [isinstance(answer, QuotaExceeded) for answer in answers] == [True, False, False]


async def test_calls_of_models_wait_for_their_profiles_beside_the_loop(
    server: str, schema: str, records: PostgresHomeRecords
) -> None:
    store_config(records.documents(), ModelsConfig({"quick": Profile("quick", "scripted")}))
    providers, calls = Providers({}), records.calls()
    gateway = ModelGateway(ConfigFile(records.documents()), providers, calls, NO_TRACER, Random(1))
    request = ModelRequest("call_1", "acme", "none", [])
    with silent(server, schema, "document"):
        asked = asyncio.create_task(gateway.profiles())
        called = asyncio.create_task(anext(gateway.stream(request)))
        await waiting(server)
        assert not asked.done()
        assert not called.done()
    assert list(await asked) == ["quick"]
    record = await called
    assert isinstance(record, CallRecord)
    assert (record.status, (record.error or {})["kind"]) == ("failed", "unknown_profile")
    await providers.aclose()
    assert records.call_log().latest("acme", 9) == [record]
