"""A journal is opened by its URL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from chronicle.errors import InvalidInput, NotFound
from chronicle.journal.opening import open_journal
from chronicle.journal.places import postgres_place, without_password
from chronicle.testing.journal_contract import Writer


def test_a_path_and_a_url_name_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a journal%20.db"
    with closing(open_journal(str(path))) as store:
        session = Writer.on(store).session
    with closing(open_journal(f"sqlite:///{quote(str(path))}", read_only=True)) as store:
        assert [found.session_id for found in store.sessions()] == [session.session_id]
    assert path.is_file()


def test_none_is_created_unless_it_may_be(tmp_path: Path) -> None:
    for create, read_only in ((False, False), (True, True)):
        with pytest.raises(NotFound):
            open_journal(str(tmp_path / "journal.db"), create=create, read_only=read_only)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["mysql://somewhere/db", "sqlite://relative.db", "s3://bucket/journal"])
def test_an_unknown_database(url: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(InvalidInput, match=f"^{scheme}:// is no journal that is known: give a path, sqlite:///PATH or"):
        open_journal(url)


@pytest.mark.parametrize(
    ("url", "passed", "schema"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d", "chronicle"),
        ("postgresql://u@h/d?schema=a%20b", "postgresql://u@h/d", "a b"),
        (
            "postgresql:///d?host=%2Fmy%20dir&schema=x&options=-c+a%3Db",
            "postgresql:///d?host=%2Fmy%20dir&options=-c+a%3Db",
            "x",
        ),
    ],
)
def test_libpq_gets_its_parameters_as_they_were_given(url: str, passed: str, schema: str) -> None:
    assert postgres_place(url) == (passed, schema)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:se/cr@et@h:5/d", "postgresql://u@h:5/d"),
        ("postgresql://u:s%2Fcret@h:5/d?password=x&sslmode=require", "postgresql://u@h:5/d?sslmode=require"),
        ("postgresql://u@h/d?schema=x&password=secret", "postgresql://u@h/d?schema=x"),
        ("postgresql:///d?host=%2Frun", "postgresql:///d?host=%2Frun"),
        ("postgresql://:secret@h1:1,h2:2/d", "postgresql://@h1:1,h2:2/d"),
    ],
)
def test_a_password_is_taken_out_of_a_url(url: str, shown: str) -> None:
    assert without_password(url) == shown
