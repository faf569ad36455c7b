"""Errors keep their type, text, fields, notes and cause from process to process."""

from __future__ import annotations

import copy
import pickle

import pytest

from chronicle.errors import InboxFull, NotFound, StorageRefused, Unavailable
from podium.errors import PodiumError
from podium.state.errors import MigrationFailed
from tests.error_classes import error_classes, name_of, sample, seen


@pytest.mark.parametrize("cls", error_classes(), ids=name_of)
def test_every_error_is_the_same_after_pickle(cls: type[BaseException]) -> None:
    error = sample(cls)
    assert seen(pickle.loads(pickle.dumps(error))) == seen(error)
    assert seen(copy.copy(error)) == seen(error)


def test_the_walk_finds_all_three_packages() -> None:
    roots = {name_of(cls).partition(".")[0] for cls in error_classes()}
    assert roots == {"chronicle", "podium", "coordinator"}


def test_causes_of_ours_travel_as_a_chain() -> None:
    error = NotFound("no such file")
    error.__cause__ = InboxFull(3)
    error.__cause__.__cause__ = StorageRefused("the disk is full")
    there = pickle.loads(pickle.dumps(error))
    assert isinstance(there.__cause__, InboxFull)
    assert there.__cause__.limit == 3
    assert isinstance(there.__cause__.__cause__, StorageRefused)


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
    there = pickle.loads(pickle.dumps(error))
    assert str(there) == str(error)
    assert there.from_version == 1
    assert there.__cause__ is None
