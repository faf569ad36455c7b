"""Stores on this machine that lost something or cannot be written: what is said, and that nothing is made."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import blob_id
from chronicle.cli import ExitCode, main
from chronicle.errors import BlobMissing
from chronicle.repository import Repository
from chronicle.repository.store_directory import StoreDirectory
from tests.unit.read_only import listing, without_write_access

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = random.Random(1).randbytes(300_000)


class Store:
    """A store with one commit, and the command on it."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capture = capture
        repository = Repository(directory)
        with repository.used("main") as workspace:
            workspace.write("a", b"one")
            workspace.write("large", LARGE)
        repository.commit("main", "first")

    @property
    def journal(self) -> Path:
        return self.directory / "journal.db"

    def packs(self) -> list[Path]:
        return sorted(path for path in (self.directory / "blobs" / "packs").rglob("*") if path.is_file())

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run a command; return what it said, on stderr if it is to fail."""
        self._capture.readouterr()
        found = main([*arguments, "--store", str(self.directory)])
        said = self._capture.readouterr()
        assert found == code, said
        return said.err if code not in (0, ExitCode.DAMAGED) else said.out + said.err


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Store:
    return Store(tmp_path / "store", capsys)


# -- a lost journal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [None, b""])
def test_a_store_whose_journal_was_lost_is_not_taken_for_an_empty_one(store: Store, left: bytes | None) -> None:
    kept = store.journal.read_bytes()
    store.journal.unlink()
    if left is not None:
        store.journal.write_bytes(left)
    before = listing(store.directory)
    for command in (["log"], ["cat", "a"], ["commit", "-m", "x"], ["fork", "new"], ["verify"], ["gc", "--dry-run"]):
        said = store(*command, code=ExitCode.DAMAGED)
        assert "journal.db was lost" in said
        assert "backup" in said
    assert {name: of for name, of in listing(store.directory).items() if name not in (".", "blobs")} == {
        name: of for name, of in before.items() if name not in (".", "blobs")
    }
    store.journal.write_bytes(kept)
    assert store("cat", "a") == "one"


def test_a_store_that_is_filled_while_it_is_opened_has_lost_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = StoreDirectory(tmp_path / "new")
    new.create()
    glob = Path.glob

    def fill_and_glob(directory: Path, pattern: str) -> Iterator[Path]:
        if pattern == "blobs/packs/*/*" and not (new.directory / "journal.db").exists():
            for name in ("journal.db", "blobs"):  # in the order in which a command makes them
                store.journal.with_name(name).rename(new.directory / name)
        return glob(directory, pattern)

    monkeypatch.setattr(Path, "glob", fill_and_glob)
    with new.read_journal() as journal:
        assert len(journal.sessions()) == 1
    assert any(new.directory.glob("blobs/packs/*/*"))


# -- missing blobs, and packs that are damaged around them -------------------------------------------------------------


def test_missing_blobs_are_damage(store: Store) -> None:
    for pack in store.packs():
        pack.unlink()
    for command in (["cat", "a"], ["diff", "0", "1"], ["restore", "@1"]):
        said = store(*command, code=ExitCode.DAMAGED)
        assert "workspace 'main' is damaged: no blob" in said
        assert "chronicle verify" in said
    assert "no blob" in store("verify", code=ExitCode.DAMAGED)


@pytest.mark.parametrize(
    ("what", "at"), [("first 8 bytes", 0), ("first 8 bytes", 7), ("index", -40), ("trailer", -1), ("trailer", -8)]
)
def test_damage_of_a_pack_around_its_blobs_is_found(store: Store, what: str, at: int) -> None:
    assert "good" in store("verify")
    (pack, *_) = store.packs()
    data = bytearray(pack.read_bytes())
    data[at] ^= 0x80
    pack.chmod(0o644)
    pack.write_bytes(data)
    assert store("cat", "a") == "one"  # by the index of the store
    said = store("verify", code=ExitCode.DAMAGED)
    assert f"pack {pack.name}" in said
    assert what in said or "format" in said
    assert "its blobs can be read today" in said


# -- stores that cannot be written -------------------------------------------------------------------------------------


def test_writing_to_a_store_that_cannot_be_written(store: Store) -> None:
    before = listing(store.directory)

    def write() -> None:
        for command in (["commit", "-m", "x"], ["fork", "new"], ["restore", "@1"], ["gc"]):
            assert "writ" in store(*command, code=ExitCode.OS_ERROR)
        assert "nothing was changed" in store("gc", "--dry-run") + store._capture.readouterr().err

    without_write_access(store.directory, write)
    assert listing(store.directory) == before


def test_looking_for_what_gc_would_do_leaves_no_trace(store: Store) -> None:
    before = listing(store.directory)
    store("gc", "--dry-run")
    assert listing(store.directory) == before


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", directory], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def fill(path: Path) -> None:
    """Take every byte that is left of a disk."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_store_on_a_full_disk_is_read_and_says_what_to_do(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(disk / "store", capsys)
    fill(disk / "other")
    for _ in range(2):
        for command in (["commit", "-m", "x"], ["fork", "new"]):
            said = store(*command, code=ExitCode.OS_ERROR)
            assert "is full" in said
            assert "make space" in said
        assert len(json.loads(store("log", "--json"))) == 1
        assert "good" in store("verify")
        store("gc", "--dry-run")
        assert store("cat", "a") == "one"
    (disk / "other").unlink()
    store("fork", "new")
    assert "nothing changed" in store("commit", "-m", "x")


def test_gc_frees_what_nothing_needs_on_a_full_disk(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(disk / "store", capsys)
    repository = Repository(store.directory)
    needed = set(store.packs())
    wanted = random.Random(2).randbytes(100_000)
    with repository.blobs() as blobs:
        blobs.put({blob_id(wanted): wanted})
    fill(disk / "other")
    (pack,) = set(store.packs()) - needed
    before = shutil.disk_usage(disk).free
    freed = json.loads(store("gc", "--now", "--json"))
    assert (freed["dropped"], freed["packs"]) == (1, len(needed) + 1)
    assert shutil.disk_usage(disk).free >= before + 50_000
    assert not pack.exists()
    assert "good" in store("verify")
    with repository.blobs() as blobs:
        with pytest.raises(BlobMissing):
            blobs.get(blob_id(wanted))
        (disk / "other").unlink()
        blobs.put({blob_id(wanted): wanted})
        assert blobs.get(blob_id(wanted)) == wanted


# -- what says that a directory is a store -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['{"chronicle-store": 2}', "garbage", "{}", "[]", '{"chronicle-store": "1"}', '{"chronicle-store": 0}', "\xff"],
)
def test_a_damaged_format(store: Store, text: str) -> None:
    (store.directory / "format").write_text(text, encoding="latin-1")
    said = store("log", code=ExitCode.DAMAGED)
    assert "format is damaged: it should hold" in said
    assert '{"chronicle-store": 1}' in said
