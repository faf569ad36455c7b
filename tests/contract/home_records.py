"""The contract of the records of a home beside its journal: subclass it to test another place for them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, InvalidInput, NotFound
from coordinator.access.caller import Scope, UnknownKey
from coordinator.access.keys import KEY_PREFIX, claims_in, is_key, is_link, is_of_home
from coordinator.access.quotas import Quota
from coordinator.models.calls import CallRecord
from podium.address import Address
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.canonical import JsonObject
    from coordinator.access.keys import Key
    from coordinator.access.records import KeyRecords
    from coordinator.homes.records import HomeRecords

__all__ = ["HomeRecordsContract"]


def keep(records: HomeRecords, *made: CallRecord) -> None:
    """Record calls."""
    with closing(records.calls()) as calls:
        for each in made:
            assert calls.begin(each)


class HomeRecordsContract:
    """Give it a fixture ``records``: those of a new home, which other processes may use, too."""

    @pytest.fixture
    def keys(self, records: HomeRecords) -> Iterator[KeyRecords]:
        """The keys of the home."""
        with closing(records.keys()) as keys:
            yield keys

    # -- keys -----------------------------------------------------------------------------------------------------

    def test_a_key_is_found_by_its_text_alone(self, records: HomeRecords, keys: KeyRecords) -> None:
        key, text = keys.create("ci", "acme", [Scope.READ], 5, expires_ms=9)
        assert text.startswith(key.prefix)
        assert is_of_home(key.prefix, keys.tag)
        with closing(records.keys()) as others:
            assert others.find(text) == key
        assert (key.name, key.tenant, key.scopes, key.created_ms) == ("ci", "acme", frozenset({Scope.READ}), 5)
        assert keys.find(text[:-1] + ("a" if text[-1] != "a" else "b")) is None

    def test_keys_are_random(self, keys: KeyRecords) -> None:
        texts = {keys.create("n", "default", [Scope.READ], 1)[1] for _ in range(50)}
        assert len({text[len(KEY_PREFIX) + 4 :] for text in texts}) == 50
        assert {len(text) for text in texts} == {len(KEY_PREFIX) + 4 + 36}

    def test_revoking_and_rotating(self, keys: KeyRecords) -> None:
        key, text = keys.create("n", "acme", [Scope.ADMIN], 1)
        other, other_text = keys.create("m", "zeta", [Scope.READ], 2)
        _, token = keys.create("t", "acme", [Scope.READ], 3, agent=Address("a", "b", "acme"), made_by=key.key_id)
        assert keys.listed() == [key, other]
        assert keys.listed("acme") == [key]
        rotated, new = keys.rotate(key.key_id)
        assert (rotated.key_id, rotated.scopes) == (key.key_id, key.scopes)
        assert keys.find(text) is None
        assert keys.find(token) is None
        assert keys.find(new) == rotated
        for refused in (keys.revoke, keys.rotate):
            with pytest.raises(NotFound):
                refused(other.key_id, "acme")
            with pytest.raises(NotFound):
                refused("key_none", None)
        assert keys.revoke(other.key_id, "zeta") == other
        assert keys.find(other_text) is None

    def test_the_claims_of_a_token_are_a_part_of_its_text(self, keys: KeyRecords) -> None:
        maker, _ = keys.create("n", "default", [Scope.ADMIN], 1)
        agent = Address("a", "b")
        claims: JsonObject = {"sub": "ann"}
        token, text = keys.create("t", "default", [Scope.READ], 1, agent=agent, made_by=maker.key_id, claims=claims)
        other, other_text = keys.create("t", "default", [Scope.READ], 1, agent=agent, made_by=maker.key_id, claims={})
        assert (claims_in(text), claims_in(other_text)) == (claims, {})
        assert (keys.find(text), keys.find(other_text)) == (token, other)
        part, _, coded = text.partition(".")
        for forged in (part, f"{part}.", f"{other_text}.{coded}", f"{text}A"):
            assert keys.find(forged) is None
        with pytest.raises(InvalidInput, match="at most 1024 bytes"):
            keys.create("t", "default", [Scope.READ], 1, agent=agent, claims={"sub": "x" * 1024})

    def test_a_link_is_revoked_by_itself_and_ends_with_what_made_it(self, keys: KeyRecords) -> None:
        agent = Address("a", "b", "acme")
        claims: JsonObject = {"run": "msg_1"}

        def link(made_by: str) -> tuple[Key, str]:
            return keys.create(
                "l", "acme", [Scope.ANSWER], 1, expires_ms=9, agent=agent, made_by=made_by, claims=claims, link=True
            )

        maker, _ = keys.create("n", "acme", [Scope.WRITE], 1)
        token, token_text = keys.create("t", "acme", [Scope.ANSWER], 1, expires_ms=7, agent=agent, made_by=maker.key_id)
        first, first_text = link(maker.key_id)
        second, second_text = link(token.key_id)
        assert (first.key_id[:4], first_text[:3], is_link(first_text), is_key(first_text)) == (
            "lnk_",
            "pl_",
            True,
            False,
        )
        assert (keys.find(first_text), keys.find(second_text)) == (first, second)
        assert second.expires_ms == 7
        assert keys.listed() == [maker]
        for key_id, tenant in ((first.key_id, "zeta"), (token.key_id, None), ("lnk_none", None)):
            with pytest.raises(NotFound):
                keys.revoke(key_id, tenant)
        with pytest.raises(NotFound):
            keys.rotate(first.key_id)
        assert keys.revoke(first.key_id, "acme") == first
        assert keys.find(first_text) is None
        assert keys.find(token_text) == token
        keys.revoke(maker.key_id)
        assert keys.find(second_text) is None

    def test_a_token_expires_with_its_key(self, keys: KeyRecords) -> None:
        agent = Address("a", "b")
        for ends, wanted, given in ((10, 5, 5), (10, 50, 10), (10, None, 10), (None, 50, 50), (None, None, None)):
            maker, _ = keys.create("n", "default", [Scope.ADMIN], 1, expires_ms=ends)
            token, text = keys.create(
                "t", "default", [Scope.READ], 1, expires_ms=wanted, agent=agent, made_by=maker.key_id
            )
            assert (token.expires_ms, keys.find(text)) == (given, token)
            key, _ = keys.create("k", "default", [Scope.READ], 1, expires_ms=wanted, made_by=maker.key_id)
            assert key.expires_ms == wanted

    def test_a_revoked_key_makes_no_other_one(self, keys: KeyRecords) -> None:
        maker, _ = keys.create("n", "default", [Scope.ADMIN], 1)
        keys.revoke(maker.key_id)
        for agent in (None, Address("a", "b")):
            with pytest.raises(UnknownKey, match="was revoked"):
                keys.create("k", "default", [Scope.ADMIN], 2, agent=agent, made_by=maker.key_id)
        assert keys.listed() == []

    def test_a_use_is_recorded(self, keys: KeyRecords) -> None:
        key, text = keys.create("n", "default", [Scope.READ], 1)
        keys.note_use(key.key_id, 7)
        found = keys.find(text)
        assert found is not None
        assert found.last_used_ms == 7

    def test_changes_are_noticed(self, records: HomeRecords, keys: KeyRecords) -> None:
        """A change by another process moves the number, a reading and a use do not."""
        key, _ = keys.create("n", "default", [Scope.READ], 1)
        before = keys.changes()
        keys.listed()
        keys.note_use(key.key_id, 7)
        assert keys.changes() == before
        with closing(records.keys()) as others:
            others.revoke(key.key_id)
        assert keys.changes() != before
        before = keys.changes()
        keep(records, record("call_1"))
        assert keys.changes() == before, "calls are written often, and no request asks for them"
        records.set_quotas({"acme": Quota(agents=1)})
        assert keys.changes() != before

    # -- quotas ---------------------------------------------------------------------------------------------------

    def test_quotas_are_replaced_as_a_whole(self, records: HomeRecords) -> None:
        assert records.quotas() is None
        records.set_quotas({})
        keep(records, record("call_1"))
        assert records.quotas() is None
        records.set_quotas({"acme": Quota(agents=3), "zeta": Quota(bytes=5, awake_agents=1)})
        quotas = records.quotas()
        assert quotas is not None
        with closing(quotas):
            assert quotas.quotas() == {"acme": Quota(agents=3), "zeta": Quota(bytes=5, awake_agents=1)}
            records.set_quotas({"zeta": Quota(messages_per_minute=2)})
            assert quotas.quotas() == {"zeta": Quota(messages_per_minute=2)}
            records.set_quotas({})
            assert quotas.quotas() == {}

    # -- calls ----------------------------------------------------------------------------------------------------

    def test_records_come_back_as_they_were_the_latest_first(self, records: HomeRecords) -> None:
        assert records.call_log().latest(None, 10) == []
        made = [
            record("call_1", started_ms=10),
            record(
                "call_2", started_ms=20, tenant="acme", error={"kind": "auth", "message": "no key"}, status="failed"
            ),
            record("call_3", started_ms=20, profile="slow", owner="rsp_1", turn=None, cost=None, attempts=()),
        ]
        keep(records, *made)
        assert records.call_log().latest(None, 10) == made[::-1]
        assert records.call_log().latest(None, 2) == made[:0:-1]
        assert records.call_log().latest("acme", 10) == [made[1]]
        assert records.call_log().latest("default", 10, owner="rsp_1") == [made[2]]
        assert records.call_log().latest(None, 10, profile="fast") == [made[1], made[0]]
        assert records.call_log().latest(None, 10, before=(20, "call_3")) == [made[1], made[0]]
        assert [CallRecord.from_json(each.to_json()) for each in made] == made

    def test_an_id_is_recorded_once_and_its_end_replaces_its_beginning(self, records: HomeRecords) -> None:
        with closing(records.calls()) as store:
            assert store.begin(record("call_1", status="running", cost=None))
            assert not store.begin(record("call_1", tenant="acme"))
            store.end(record("call_1"))
        assert records.call_log().latest(None, 10) == [record("call_1")]

    def test_calls_of_a_process_that_was_killed_are_lost(self, records: HomeRecords) -> None:
        keep(records, record("call_1", status="running", cost=None), record("call_2", started_ms=11))
        with closing(records.calls()) as store:
            assert store.give_up_running() == 1
            assert store.give_up_running() == 0
        second, first = records.call_log().latest(None, 10)
        assert (first.status, second.status) == ("lost", "completed")
        assert first.error == {"kind": "unavailable", "message": "the model gateway was killed during the call"}

    def test_records_are_counted_as_they_are_listed(self, records: HomeRecords) -> None:
        log = records.call_log()
        assert log.count(None) == 0
        keep(records, *(record(f"call_{number}", started_ms=number, tenant="acme") for number in range(5)))
        assert (log.count("acme"), log.count("default"), log.count(None, before=(3, "call_3"))) == (5, 0, 3)

    # -- documents ------------------------------------------------------------------------------------------------

    def test_a_document_is_replaced_as_a_whole(self, records: HomeRecords) -> None:
        documents, others = records.documents(), records.documents()
        assert documents.read("a.json") is None
        assert documents.stamp("a.json") is None
        documents.write("a.json", b"one, and longer")
        first = others.stamp("a.json")
        assert others.read("a.json") == b"one, and longer"
        assert others.stamp("a.json") == first
        documents.write("a.json", b"two")
        assert others.read("a.json") == b"two"
        assert others.stamp("a.json") != first
        assert documents.read("b.json") is None
        assert "a.json" in documents.place("a.json")

    # -- all of it ------------------------------------------------------------------------------------------------

    def test_one_collects_garbage_at_a_time(self, records: HomeRecords) -> None:
        with records.collection_lease().hold() as held:
            held()
            with (
                pytest.raises(Conflict, match="another gc of this home is running"),
                records.collection_lease().hold(),
            ):
                pytest.fail("two have the lease")
            held()
        with records.collection_lease().hold() as held:
            held()

    def test_there_is_no_damage(self, records: HomeRecords, keys: KeyRecords) -> None:
        assert records.damage() == {}
        keys.create("n", "default", [Scope.READ], 1)
        keep(records, record("call_1"))
        assert records.damage() == {}
