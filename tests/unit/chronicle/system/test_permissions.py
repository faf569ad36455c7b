"""What was in somebody's files is not readable by others where it is kept."""

from __future__ import annotations

import os
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.ids import BranchId, SessionId
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.repository import Repository
from chronicle.repository.store_directory import StoreDirectory
from chronicle.system.permissions import make_private, private_mode
from coordinator.home import Home
from tests.leftovers import new_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 61_003
SECRET = b"secret" * 1_000
DEADLINE_S = 60


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can enter, as pytest's are not."""
    with new_directory("chronicle-private-") as directory:
        directory.chmod(0o755)
        yield directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def keep(place: Path) -> None:
    """Put a secret into the blob store there."""
    blobs = PackBlobStore(f"file://{place / 'blobs'}")
    blobs.put({blob_id(SECRET): SECRET})
    blobs.close()


def found_by_a_stranger(place: Path) -> list[str]:
    """Return the files that another user finds and may read."""
    command = ["find", str(place), "-type", "f", "-readable"]
    done = subprocess.run(
        command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, timeout=DEADLINE_S,
        check=False, cwd="/",
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
@pytest.mark.parametrize("kind", ["store", "home"])
def test_a_stranger_reads_nothing_of_what_is_kept(public: Path, kind: str) -> None:
    place = public / "kept"
    StoreDirectory.at(str(place)).create() if kind == "store" else Home(place).create()
    keep(place)
    assert list((place / "blobs").rglob("*"))
    assert found_by_a_stranger(public) == []


def test_a_directory_of_the_users_keeps_its_mode_and_the_blobs_in_it_are_theirs(public: Path) -> None:
    place = public / "kept"
    place.mkdir(mode=0o755)
    StoreDirectory.at(str(place)).create()
    keep(place)
    assert (mode(place), mode(place / "blobs")) == (0o755, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_the_record_in_a_directory_of_the_users_is_theirs(public: Path) -> None:
    place = public / "kept"
    place.mkdir(mode=0o755)
    repository = Repository(place)
    with repository.used("main") as workspace:
        workspace.write("a", SECRET)
    repository.commit("main", "first")
    with repository.used("main") as workspace:
        workspace.write("a", SECRET * 2)
        with repository.journal() as journal:
            journal.sessions()
            beside = {path.name: mode(path) for path in place.glob("journal.db*")}
    assert beside.keys() >= {"journal.db", "journal.db-wal", "journal.db-shm", "journal.db-queue"}
    assert set(beside.values()) == {0o600}
    assert [Path(path).name for path in found_by_a_stranger(public)] == ["format"]


def test_a_record_that_is_there_keeps_its_mode(public: Path) -> None:
    (public / "journal.db").touch()
    (public / "journal.db").chmod(0o640)
    with closing(SqliteJournalStore(public / "journal.db")) as journal:
        journal.ensure_session("name", SessionId("ses_1"), BranchId("br_1"), 1)
        assert {mode(path) for path in public.glob("journal.db-[ws]*")} == {0o640}
    assert mode(public / "journal.db") == 0o640


def test_users_who_share_a_directory_share_what_is_in_it(public: Path) -> None:
    (public / "ours").mkdir()
    (public / "ours").chmod(0o2775)
    (public / "all").mkdir()
    (public / "all").chmod(0o1777)
    for above, wanted in (("ours", 0o2755), ("all", 0o700)):
        made = public / above / "made"
        before = os.umask(0o022)
        try:
            make_private(made)
            make_private(made)
        finally:
            os.umask(before)
        assert mode(made) == wanted
        assert private_mode(made.parent) == (0o666 if above == "ours" else 0o600)
