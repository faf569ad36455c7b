"""Objects: immutable records beside the events."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, IdempotencyConflict, NotFound
from chronicle.ids import BlobId
from chronicle.journal.objects import Repetition, StoredObject
from chronicle.journal.records import Session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from typing import Any

    from chronicle.journal.port import JournalStore

__all__ = ["ObjectContract"]


def new_artifact(body: bytes = b'{"a":1}', **more: Any) -> StoredObject:
    """Return an object with a body that is inline."""
    object_id = IDS.other("art_", NOW_MS)
    return StoredObject("artifact", object_id, NOW_MS, body, None, sha256(body).hexdigest(), **more)


def asked(key: str, request: bytes = b"this") -> Repetition:
    """Return what makes a request a repeat."""
    return Repetition(key, sha256(request).hexdigest())


def new_session(namespace: str = "acme") -> Session:
    """Return a session that does not exist."""
    session_id = IDS.session(NOW_MS)
    return Session(session_id, session_id, IDS.branch(NOW_MS), NOW_MS, namespace)


class ObjectContract(Contract):
    """Objects are stored once, found by id and by key, and go with their session."""

    def test_objects_are_found_as_they_were_stored(self, store: JournalStore) -> None:
        inline = new_artifact("é\0".encode(), namespace="acme", content=BlobId("c" * 64), size_bytes=2**40)
        outside = replace(
            new_artifact(namespace="acme", expires_ms=NOW_MS + 2**40, repetition=asked("key")),
            body=None,
            body_ref=BlobId("b" * 64),
        )
        assert store.put_object(inline) == inline
        assert store.put_object(outside) == outside
        seen = self.other_handle(store)
        for each in (inline, outside):
            assert seen.object("artifact", each.object_id, "acme") == each
            for kind, object_id, namespace in (
                ("artifact", each.object_id, "default"),
                ("bundle", each.object_id, "acme"),
                ("artifact", each.object_id + "0", "acme"),
            ):
                with pytest.raises(NotFound):
                    seen.object(kind, object_id, namespace)
        assert list(seen.all_objects()) == [inline, outside]
        assert seen.object_bytes("acme") == 2**40
        assert seen.object_bytes() == 0

    def test_they_are_listed_by_id(self, store: JournalStore) -> None:
        first, second, third = (new_artifact(namespace="acme") for _ in range(3))
        first, second, third = (
            replace(each, object_id=f"art_{n}") for n, each in enumerate((first, second, third), start=1)
        )
        for each in (third, first, second):
            store.put_object(each)
        store.put_object(replace(first, namespace="other"))
        store.put_object(replace(first, kind="bundle"))
        seen = self.other_handle(store)
        assert list(seen.objects("artifact", "acme")) == [first, second, third]
        assert list(seen.objects("artifact", "acme", after="art_1", limit=1)) == [second]
        assert list(seen.objects("artifact", "acme", after="art_3")) == []
        assert [each.kind for each in seen.objects("bundle", "acme")] == ["bundle"]
        assert list(seen.objects("artifact")) == []
        assert len(list(seen.all_objects())) == 5

    def test_the_ids_of_a_session_are_listed(self, store: JournalStore) -> None:
        session, other = new_session(), new_session()
        for each in (session, other):
            store.ensure_session(each.name, each.session_id, each.main_branch_id, NOW_MS, "acme")
        for number in (3, 1, 2):
            made = new_artifact(namespace="acme", session_id=session.session_id if number > 1 else other.session_id)
            store.put_object(replace(made, object_id=f"art_{number}"))
        store.put_object(replace(new_artifact(namespace="acme", session_id=session.session_id), kind="bundle"))
        seen = self.other_handle(store)
        assert list(seen.object_ids("artifact", session.session_id, "acme")) == ["art_2", "art_3"]
        assert list(seen.object_ids("artifact", other.session_id, "acme")) == ["art_1"]
        assert list(seen.object_ids("artifact", session.session_id)) == []

    def test_those_that_are_left_are_told(self, store: JournalStore) -> None:
        kept, expiring = new_artifact(namespace="acme"), new_artifact(namespace="acme", expires_ms=NOW_MS + 10)
        many = [replace(new_artifact(namespace="acme"), object_id=f"art_{number}") for number in range(300)]
        for each in (kept, expiring, *many):
            store.put_object(each)
        ids = [each.object_id for each in (kept, expiring, *many)]
        seen = self.other_handle(store)
        assert seen.objects_left("artifact", [*ids, "art_none"], NOW_MS, "acme") == set(ids)
        assert seen.objects_left("artifact", ids[:2], NOW_MS + 10, "acme") == {kept.object_id}
        store.delete_object("artifact", many[7].object_id, "acme")
        assert set(ids) - seen.objects_left("artifact", ids, NOW_MS, "acme") == {many[7].object_id}
        assert not seen.objects_left("artifact", ids, NOW_MS)
        assert not seen.objects_left("bundle", ids, NOW_MS, "acme")
        assert not seen.objects_left("artifact", [], NOW_MS, "acme")

    def test_an_id_is_taken_once(self, store: JournalStore) -> None:
        made = store.put_object(new_artifact())
        with pytest.raises(Conflict):
            store.put_object(replace(made, body=b"{}", body_sha256=sha256(b"{}").hexdigest()))
        assert store.object("artifact", made.object_id) == made

    def test_a_repeat_gets_the_first(self, store: JournalStore) -> None:
        made = store.put_object(new_artifact(repetition=asked("key")))
        assert store.put_object(new_artifact(b"{}", repetition=asked("key"))) == made
        assert store.put_object(replace(new_artifact(repetition=asked("key")), kind="bundle")) == made
        assert store.object_of_key("key") == made
        assert store.object_of_key("key", "acme") is None
        assert store.object_of_key("other") is None
        with pytest.raises(IdempotencyConflict):
            store.put_object(new_artifact(repetition=asked("key", b"that")))
        elsewhere = store.put_object(new_artifact(namespace="acme", repetition=asked("key", b"that")))
        assert store.object_of_key("key", "acme") == elsewhere
        assert len(list(store.all_objects())) == 2

    def test_a_session_is_made_with_it(self, store: JournalStore) -> None:
        session = new_session()
        made = new_artifact(namespace="acme", session_id=session.session_id, repetition=asked("key"))
        assert store.put_object(made, session) == made
        assert self.other_handle(store).session(session.name, "acme") == session
        assert store.branch(session.main_branch_id).head.seq == 0
        assert len(store.catalogue(session.session_id)) == 1
        other = new_session()
        again = new_artifact(namespace="acme", session_id=other.session_id, repetition=asked("key"))
        assert store.put_object(again, other) == made
        assert [each.name for each in store.sessions()] == [session.name]

    def test_what_is_refused_makes_no_session(self, store: JournalStore) -> None:
        made = store.put_object(new_artifact(repetition=asked("key"), namespace="acme"))
        taken, session = new_session(), new_session()
        store.ensure_session(taken.name, taken.session_id, taken.main_branch_id, NOW_MS, "acme")
        with pytest.raises(Conflict):
            store.put_object(replace(new_artifact(), object_id=made.object_id, namespace="acme"), session)
        with pytest.raises(IdempotencyConflict):
            store.put_object(new_artifact(namespace="acme", repetition=asked("key", b"that")), session)
        with pytest.raises(Conflict):
            store.put_object(new_artifact(namespace="acme"), taken)
        with pytest.raises(NotFound):
            store.put_object(new_artifact(session_id=IDS.session(NOW_MS)), session)
        assert [each.name for each in store.sessions()] == [taken.name]
        assert list(store.all_objects()) == [made]

    def test_they_go_with_their_session(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        mine = store.put_object(new_artifact(session_id=writer.session.session_id, repetition=asked("key")))
        theirs = store.put_object(new_artifact(session_id=other.session.session_id))
        free = store.put_object(new_artifact())
        assert list(store.objects("artifact", session_id=writer.session.session_id)) == [mine]
        store.delete_session(writer.session.session_id, NOW_MS)
        assert list(self.other_handle(store).all_objects()) == [theirs, free]
        assert store.object_of_key("key") is None
        with pytest.raises(NotFound):
            store.put_object(new_artifact(session_id=writer.session.session_id))

    def test_they_are_deleted(self, store: JournalStore) -> None:
        made = store.put_object(new_artifact(size_bytes=5))
        assert not store.delete_object("artifact", made.object_id, "acme")
        assert not store.delete_object("bundle", made.object_id)
        assert store.delete_object("artifact", made.object_id)
        assert not store.delete_object("artifact", made.object_id)
        assert list(self.other_handle(store).all_objects()) == []
        assert store.object_bytes() == 0
        assert store.put_object(made) == made

    def test_one_of_many_repeats_is_stored(self, store: JournalStore) -> None:
        def put(_: int) -> tuple[StoredObject, Session]:
            session = new_session()
            made = new_artifact(namespace="acme", session_id=session.session_id, repetition=asked("key"))
            return store.put_object(made, session), session

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(put, range(16)))
        (stored,) = {each for each, _ in found}
        assert [each.session_id for each in store.sessions()] == [stored.session_id]
        assert list(store.all_objects()) == [stored]

    def test_all_of_many_are_read(self, store: JournalStore) -> None:
        made = [store.put_object(new_artifact(namespace=f"t{number % 3}")) for number in range(600)]
        assert list(self.other_handle(store).all_objects()) == made
