"""Errors keep their type, text, fields, notes and cause from process to process."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import Any

import pytest

from chronicle.error_pickling import Portable
from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import InboxFull, NotFound, OverQuota, StorageRefused, Unavailable
from chronicle.journal.verify import _Damaged
from coordinator.gateway.errors import ApiError
from podium.errors import PodiumError
from podium.state.errors import MigrationFailed
from podium.state.tracked.node import Refusal
from tests.error_classes import error_classes, name_of, sample, seen


@pytest.mark.parametrize("cls", error_classes(), ids=name_of)
def test_every_error_is_the_same_after_pickle(cls: type[BaseException]) -> None:
    error = sample(cls)
    assert seen(pickle.loads(pickle.dumps(error))) == seen(error)
    assert seen(copy.copy(error)) == seen(error)


def over_the_wire(error: BaseException) -> Any:
    return error_from_wire(json.loads(json.dumps(error_to_wire(error, Unavailable))), Unavailable)


@pytest.mark.parametrize("cls", [each for each in error_classes() if issubclass(each, Portable)], ids=name_of)
def test_every_error_is_the_same_after_a_socket(cls: type[BaseException]) -> None:
    error = sample(cls)
    there = over_the_wire(error)
    if cls in {OverQuota, ApiError, Refusal, _Damaged}:  # a field of theirs is for their own process only
        assert (type(there), str(there)) == (cls, str(error))
    else:
        assert seen(there) == seen(error)


def test_the_walk_finds_all_three_packages() -> None:
    roots = {name_of(cls).partition(".")[0] for cls in error_classes()}
    assert roots == {"chronicle", "podium", "coordinator"}


def test_causes_of_ours_travel_as_a_chain() -> None:
    error = NotFound("no such file")
    error.__cause__ = InboxFull(3)
    error.__cause__.__cause__ = StorageRefused("the disk is full")
    for there in (pickle.loads(pickle.dumps(error)), over_the_wire(error)):
        assert isinstance(there.__cause__, InboxFull)
        assert there.__cause__.limit == 3
        assert isinstance(there.__cause__.__cause__, StorageRefused)


def test_an_error_that_was_raised_from_itself_travels() -> None:
    error = NotFound("no such file")
    error.__cause__ = InboxFull(3)
    error.__cause__.__cause__ = error
    there = over_the_wire(error)
    assert (str(there), type(there.__cause__)) == ("no such file", InboxFull)


def test_an_error_without_a_cause_has_none_there() -> None:
    there = pickle.loads(pickle.dumps(Unavailable("away")))
    assert there.__cause__ is None
    assert not there.__suppress_context__


class _UsersOwn(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class _UsersOfOurs(PodiumError):
    """A class of a user's file, which the receiver does not have, derived from one of ours."""


@pytest.mark.parametrize(
    "cause",
    [_UsersOwn("a", "b"), _UsersOfOurs("a"), ValueError(lambda: None), ValueError(_UsersOwn("a", "b"))],
    ids=["class", "class derived from ours", "argument", "argument that does not load"],
)
def test_a_cause_that_may_not_load_there_stays_behind(cause: Exception) -> None:
    error = MigrationFailed("State", 1, "_UsersOwn: a")
    error.__cause__ = cause
    for there in (pickle.loads(pickle.dumps(error)), over_the_wire(error)):
        assert (type(there), str(there)) == (MigrationFailed, str(error))
        assert there.from_version == 1
        assert there.__cause__ is None


@pytest.mark.parametrize("error", [_UsersOwn("a", "b"), _UsersOfOurs("a")], ids=["class", "class derived from ours"])
def test_an_error_of_a_users_class_arrives_as_one_of_ours(error: Exception) -> None:
    there = over_the_wire(error)
    assert (type(there), str(there)) == (Unavailable, f"{type(error).__name__}: a")


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "builtins:SystemExit",
        "podium.errors:Portable.x",
        "chronicle.nothing.errors:X",
        ":",
    ],
)
def test_a_name_from_the_other_end_calls_nothing(name: str) -> None:
    there = error_from_wire(error_to_wire(NotFound("echo hello"), Unavailable) | {"type": name}, Unavailable)
    assert (type(there), str(there)) == (Unavailable, "echo hello")


def test_a_name_from_the_other_end_imports_modules_of_errors_only() -> None:
    for name in ("tests.benchmarks.errors:X", "coordinator.testing.scripted_server:X"):
        loaded = sys.modules.pop(name.partition(":")[0], None)
        error_from_wire(error_to_wire(NotFound("x"), Unavailable) | {"type": name}, Unavailable)
        assert name.partition(":")[0] not in sys.modules
        if loaded is not None:
            sys.modules[name.partition(":")[0]] = loaded
