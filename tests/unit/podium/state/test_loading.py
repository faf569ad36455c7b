"""Loading stored state: migrations, classes that changed, documents that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, RootModel, model_validator
from typing_extensions import TypedDict

from chronicle.canonical import JsonObject, encode
from podium.agent.models.delta_state import DeltaState
from podium.state import (
    MigrationFailed,
    MigrationMissing,
    StateLoadError,
    StateTooNew,
    UnsupportedType,
    apply_patch,
    drain,
    from_json,
    is_dirty,
    migration,
    migration_patch,
    to_json,
)
from podium.testing.migrations import check_migrations

GOLDEN = Path(__file__).parent / "golden" / "state_versions"


class Visit(BaseModel):
    count: int = 0


class Movie(TypedDict):
    title: str


class Person(DeltaState):
    _version = 3
    _entity_type = "person"

    name: str
    visits: list[Visit] = []
    tags: list[str] = []

    @migration(from_version=1)
    def join_names(doc: JsonObject) -> JsonObject:  # noqa: N805  a step takes the document only
        doc["name"] = f"{doc.pop('first')} {doc.pop('last')}"
        return doc

    @migration(from_version=2)
    @staticmethod
    def visits_are_a_list(doc: JsonObject) -> JsonObject:
        return {**doc, "visits": [{"count": doc["visits"]}], "tags": []}


def test_golden_files() -> None:
    check_migrations(Person, GOLDEN)


def test_golden_files_catch_a_wrong_step(tmp_path: Path) -> None:
    for path in GOLDEN.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "v2.json").write_text('{"name": "Ada", "visits": 2}')
    with pytest.raises(AssertionError, match=r"migration from 1 does not give v2\.json"):
        check_migrations(Person, tmp_path)
    (tmp_path / "v2.json").unlink()
    with pytest.raises(AssertionError, match="has versions"):
        check_migrations(Person, tmp_path)
    with pytest.raises(AssertionError, match="has no v"):
        check_migrations(Person, tmp_path / "none")


def test_older_state_is_moved_up_step_by_step() -> None:
    stored: JsonObject = {"first": "Ada", "last": "Lovelace", "visits": 2}
    person = from_json(Person, stored, 1)
    assert stored == {"first": "Ada", "last": "Lovelace", "visits": 2}
    assert person == Person(name="Ada Lovelace", visits=[Visit(count=2)])
    assert not is_dirty(person)
    document: Any = dict(stored)
    document = apply_patch(document, migration_patch(stored, person))
    assert encode(document) == encode(to_json(person))
    person.visits[0].count += 1
    document = apply_patch(document, drain(person))
    assert encode(document) == encode(to_json(person))
    assert migration_patch(document, person) == []


def test_newer_state_is_refused() -> None:
    with pytest.raises(
        StateTooNew, match=r"stored state has version 4, but Person is at _version = 3; run the newer code"
    ):
        from_json(Person, {"name": "x"}, 4)


def test_missing_step_is_named_before_any_ran() -> None:
    class Gap(DeltaState):
        _version = 4

        @migration(from_version=1)
        def never(doc: JsonObject) -> JsonObject:  # noqa: N805
            raise AssertionError

        @migration(from_version=3)
        def last(doc: JsonObject) -> JsonObject:  # noqa: N805
            return doc

    with pytest.raises(MigrationMissing, match="no migration leads from 2 to 3") as caught:
        from_json(Gap, {}, 1)
    assert caught.value.from_version == 2

    class Never(DeltaState):
        _version = 2

    assert from_json(Never, {}, 2) == Never()
    with pytest.raises(MigrationMissing):
        from_json(Never, {}, 1)


def test_failing_steps_are_named() -> None:
    class Fails(DeltaState):
        _version = 3

        @migration(from_version=1)
        def raises(doc: JsonObject) -> JsonObject:  # noqa: N805
            doc.pop("not there")
            return doc

        @migration(from_version=2)
        def forgets_to_return(doc: JsonObject) -> None:  # noqa: N805
            doc["x"] = 1

    with pytest.raises(MigrationFailed, match="from version 1 to 2 failed: KeyError: 'not there'"):
        from_json(Fails, {}, 1)
    with pytest.raises(MigrationFailed, match="from version 2 to 3 failed: it returned NoneType"):
        from_json(Fails, {}, 2)


def test_steps_are_inherited_and_overridden() -> None:
    class Base(DeltaState):
        _version = 2
        x: int = 0

        @migration(from_version=1)
        def step(doc: JsonObject) -> JsonObject:  # noqa: N805
            return {**doc, "x": 1}

    class Inherits(Base):
        pass

    class Overrides(Base):
        @migration(from_version=1)
        def other(doc: JsonObject) -> JsonObject:  # noqa: N805
            return {**doc, "x": 2}

    assert from_json(Inherits, {}, 1).x == 1
    assert from_json(Overrides, {}, 1).x == 2


def test_wrong_declarations_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(UnsupportedType, match="whole numbers from 1"):
        migration(from_version=0)
    with pytest.raises(UnsupportedType, match="two migrations from version 1"):

        class Twice(DeltaState):
            _version = 2

            @migration(from_version=1)
            def one(doc: JsonObject) -> JsonObject:  # noqa: N805
                return doc

            @migration(from_version=1)
            def other(doc: JsonObject) -> JsonObject:  # noqa: N805
                return doc

    with pytest.raises(UnsupportedType, match="from version 1, but is at _version = 1"):

        class Ahead(DeltaState):
            @migration(from_version=1)
            def step(doc: JsonObject) -> JsonObject:  # noqa: N805
                return doc


def test_documents_that_do_not_fit() -> None:
    with pytest.raises(StateLoadError, match=r"does not fit Person: /visits/0/count: .*_version to 4"):
        from_json(Person, {"name": "x", "visits": [{"count": "many"}]}, 3)
    with pytest.raises(StateLoadError, match="does not fit Person: /name: Field required"):
        from_json(Person, {}, 3)
    with pytest.raises(StateLoadError, match="version is 0"):
        from_json(Person, {}, 0)
    with pytest.raises(StateLoadError, match="not a whole number"):
        from_json(Person, {}, True)


def test_a_new_field_takes_its_default_and_is_in_the_next_patch() -> None:
    class Before(DeltaState):
        x: int = 1

    class After(DeltaState):
        x: int = 1
        y: list[int] = [5]

    stored = to_json(Before(x=2))
    state = from_json(After, stored, 1)
    patch = migration_patch(stored, state)
    assert patch == [{"op": "add", "path": "/y", "value": [5]}]
    state.y.append(6)
    document = apply_patch(apply_patch(dict(stored), patch), drain(state))
    assert document == {"x": 2, "y": [5, 6]}


def test_a_field_that_is_gone_is_not_dropped_in_silence() -> None:
    class After(DeltaState):
        x: int = 0

    with pytest.raises(StateLoadError, match="has /secret~1plan, which .*After does not declare"):
        from_json(After, {"x": 1, "secret/plan": 2}, 1)

    class Holder(DeltaState):
        visits: dict[str, list[Visit]] = {}
        pair: tuple[int, Visit] | None = None
        root: RootModel[list[Visit]] = RootModel[list[Visit]]([])
        movie: Movie = {"title": ""}

    for document, path in (
        ({"visits": {"a": [{"count": 1}, {"count": 1, "old": 2}]}}, "/visits/a/1/old"),
        ({"pair": [1, {"old": 2}]}, "/pair/1/old"),
        ({"root": [{"old": 2}]}, "/root/0/old"),
        ({"movie": {"title": "x", "old": 2}}, "/movie/old"),
    ):
        with pytest.raises(StateLoadError, match=f"has {path}, which .*Holder does not declare"):
            from_json(Holder, cast("JsonObject", document), 1)

    class Loose(DeltaState):
        model_config = ConfigDict(extra="allow")

    class Renames(DeltaState):
        new: int = 0

        @model_validator(mode="before")
        @classmethod
        def rename(cls, data: Any) -> Any:
            return {"new": data["old"]} if "old" in data else data

    assert to_json(from_json(Loose, {"x": 1}, 1)) == {"x": 1}
    renamed = from_json(Renames, {"old": 3}, 1)
    assert migration_patch({"old": 3}, renamed) == [
        {"op": "remove", "path": "/old"},
        {"op": "add", "path": "/new", "value": 3},
    ]
