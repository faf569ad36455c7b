"""``chronicle``: comparing, restoring, forking, freeing and measuring, as a user types it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.ident import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.cli import ExitCode
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.zygote import launcher
from chronicle.testing.workspace_contract import files_below
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import served, wait_for_end
from tests.unit.read_only import without_write_access

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


@pytest.fixture
def root(chronicle: Command) -> Path:
    """A mounted workspace with two commits and something that is not committed."""
    root = chronicle.mount()
    (root / "text").write_text("one\ntwo\nthree\n")
    (root / "binary").write_bytes(b"\0\1\2")
    (root / "moves").write_text("the same all the time\n")
    (root / "goes").write_text("1\n")
    chronicle.on_store("commit", "-m", "first")
    (root / "text").write_text("one\n2\nthree\nfour\n")
    (root / "binary").write_bytes(b"\0\1\2\3")
    (root / "moves").rename(root / "moved")
    (root / "goes").unlink()
    chronicle.on_store("commit", "-m", "second")
    (root / "dir").mkdir()
    (root / "dir" / "new").write_text("new\n")
    return root


# -- diff --------------------------------------------------------------------------------------------------------------


def test_two_moments_are_compared(chronicle: Command, root: Path) -> None:
    assert root.is_dir()
    text = chronicle.on_store("diff", "1", "@2")
    assert "diff a/text b/text\n" in text
    assert "-two\n+2\n three\n+four\n" in text
    assert "Binary files a/binary and b/binary differ" in text
    assert "rename from a/moves" in text.replace("rename from moves", "rename from a/moves")
    kinds = {item["path"]: item["change"] for item in chronicle.json("diff", "1", "2")["files"]}
    assert kinds == {"text": "changed", "binary": "changed", "moved": "renamed", "goes": "removed"}
    assert chronicle.on_store("diff", "1", "2", "--names").splitlines() == [
        "M  binary",
        "D  goes",
        "R  moves -> moved",
        "M  text",
    ]
    stat = chronicle.on_store("diff", "1", "2", "--stat").splitlines()
    assert stat[0].split() == ["M", "3", "->", "4", "bytes", "binary"]
    assert stat[3].split() == ["M", "+2", "-1", "text"]
    assert stat[-1] == "4 changed, 2 lines added, 2 removed"
    described = chronicle.json("diff", "1", "2", "--stat")
    assert "diff" not in described
    assert [(item["added_lines"], item["removed_lines"]) for item in described["files"]] == [
        (None, None),
        (0, 1),
        (0, 0),
        (2, 1),
    ]
    assert described["before"], described["after"] == ("1", "2")


def test_the_last_commit_is_compared_with_what_is_now(chronicle: Command, root: Path) -> None:
    assert [item["path"] for item in chronicle.json("diff")["files"]] == ["dir", "dir/new"]
    assert chronicle.on_store("diff", "last", "@now") == chronicle.on_store("diff")
    chronicle.unmount()
    assert [item["path"] for item in chronicle.json("diff", "2")["files"]] == ["dir", "dir/new"]
    assert "+new" in chronicle.on_store("diff", "0", "now")
    assert chronicle.on_store("diff", "2", "2") == ""
    assert "nothing differs" in chronicle.said
    before = chronicle.on_store("diff", "1", "2")

    def read() -> None:
        assert chronicle.on_store("diff", "1") == before

    without_write_access(chronicle.store, read)
    assert "has commits 1 to 2" in chronicle.on_store("diff", "3", code=ExitCode.NOT_FOUND)
    assert "names no moment" in chronicle.on_store("diff", "yesterday", code=ExitCode.USAGE)
    assert root.is_dir()


# -- restore -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mounted", [True, False])
def test_everything_is_restored_and_undone(chronicle: Command, root: Path, mounted: bool) -> None:
    uncommitted = files_below(root)
    chronicle.on_store("commit", "-m", "third")
    if not mounted:
        chronicle.unmount()
    shown = chronicle.on_store("restore", "@1", "--dry-run").splitlines()
    assert shown == ["M  binary", "D  dir", "D  dir/new", "A  goes", "R  moved -> moves", "M  text"]
    assert "nothing was changed" in chronicle.said
    assert chronicle.json("diff")["files"] == []
    done = chronicle.json("restore", "@1")
    assert [item["path"] for item in done["files"]] == [line.rpartition(" ")[2] for line in shown]
    assert chronicle.on_store("diff", "1") == ""
    assert chronicle.on_store("restore", "@1") == ""
    assert "nothing differs" in chronicle.said
    if not mounted:
        chronicle.mount()
    assert set(files_below(root)) == {"binary", "goes", "moves", "text"}
    assert chronicle.json("commit", "-m", "back")["tree_id"] == chronicle.json("log")[0]["tree_id"]
    assert [item["op"] for item in chronicle.json("history", "goes")] == ["write", "delete", "restore"]
    chronicle.on_store("restore", "@3")
    assert files_below(root) == uncommitted
    assert chronicle.json("verify")[0]["problem"] is None


def test_one_path_is_restored(chronicle: Command, root: Path) -> None:
    assert chronicle.on_store("restore", "goes", "@1") == "A  goes\n"
    assert (root / "goes").read_text() == "1\n"
    assert (root / "text").read_text().startswith("one\n2\n")
    (root / "dir" / "new").unlink()
    assert "was not there" in chronicle.on_store("restore", "dir/new", "@2", code=ExitCode.NOT_FOUND)
    chronicle.on_store("commit", "-m", "third")
    (root / "dir").rmdir()
    assert chronicle.on_store("restore", "dir/", "@last") == "A  dir\n"
    assert "write it with an @" in chronicle.on_store("restore", "text", code=ExitCode.USAGE)
    assert "not committed" in chronicle.on_store("restore", "@now", code=ExitCode.USAGE)
    assert "has commits 1 to 3" in chronicle.on_store("restore", "@9", code=ExitCode.NOT_FOUND)
    assert "not a path" in chronicle.on_store("restore", "/text", "@1", code=ExitCode.USAGE)


def test_the_shell_stays_where_it_is(chronicle: Command, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    chronicle("restore", "@1")
    assert subprocess.run(["ls"], capture_output=True, text=True, check=True).stdout.split() == [
        "binary",
        "goes",
        "moves",
        "text",
    ]
    monkeypatch.undo()


# -- fork --------------------------------------------------------------------------------------------------------------


def test_a_fork_goes_on_by_itself(chronicle: Command, root: Path, tmp_path: Path) -> None:
    assert chronicle.on_store("fork", "side", "@1") == "side continues main@1\n"
    assert "already" in chronicle.on_store("fork", "side", code=ExitCode.CONFLICT)
    assert "cannot be a workspace" in chronicle.on_store("fork", "a/b", code=ExitCode.USAGE)
    side = tmp_path / "side"
    chronicle("mount", chronicle.store, side, "-w", "side")
    assert set(files_below(side)) == {"binary", "goes", "moves", "text"}
    (side / "goes").write_text("2\n")
    assert chronicle.json("commit", "-m", "on the side", "-w", "side")["turn"] == 2
    assert [item["message"] for item in chronicle.json("log", "-w", "side")] == ["first", "on the side"]
    assert [item["message"] for item in chronicle.json("log")] == ["first", "second"]
    assert [item["turn"] for item in chronicle.json("history", "goes", "-w", "side")] == [1, 2]
    assert not (root / "goes").exists()
    # A fork of the fork, from before it was one; and one of nothing.
    assert chronicle.json("fork", "third", "@1", "-w", "side")["tree_id"] == chronicle.json("log")[0]["tree_id"]
    assert chronicle.json("fork", "empty", "@0")["tree_id"] is None
    assert chronicle.json("diff", "1", "last", "-w", "third")["files"] == []
    assert chronicle.json("log", "-w", "empty") == []
    assert [check["problem"] for check in chronicle.json("verify")] == [None] * 4
    assert chronicle.json("stats", "-w", "third")["commits"] == 1


# -- gc ----------------------------------------------------------------------------------------------------------------


def test_what_no_commit_needs_is_freed(chronicle: Command, root: Path) -> None:
    garbage = os.urandom(3_000_000)
    blobs = PackBlobStore(f"file://{chronicle.store}/blobs")
    blobs.put({blob_id(garbage): garbage})
    blobs.close()
    (root / "removed").write_text("for a while\n")
    chronicle.on_store("diff")  # what is now is stored to be compared
    (root / "removed").unlink()
    before = files_below(root)
    said = chronicle.on_store("gc", "--now", code=ExitCode.CONFLICT)
    assert "is in use; unmount its workspaces first; without --now, `chronicle gc` needs no unmount" in said
    chronicle.unmount()
    stored = chronicle.json("stats")["stored_bytes"]
    planned = chronicle.json("gc", "--now", "--dry-run")
    assert planned["dropped_bytes"] > 3_000_000
    assert chronicle.json("stats")["stored_bytes"] == stored
    report = chronicle.json("gc", "--now")
    assert (report["damaged"], report["dropped"]) == ([], planned["dropped"])
    assert chronicle.json("stats")["stored_bytes"] < stored - 2_900_000
    # What is not committed is needed, and so is the version of a file that was there for a while.
    chronicle.mount()
    assert files_below(root) == before
    assert chronicle.on_store("cat", "removed@1") == "for a while\n"
    chronicle.on_store("gc")
    chronicle.on_store("commit", "-m", "third")
    assert chronicle.json("verify")[0]["problem"] is None


# -- mounting ----------------------------------------------------------------------------------------------------------


def test_a_quota_is_given_when_mounting(chronicle: Command) -> None:
    root = chronicle.mount("--quota-bytes", "1M", "--quota-files", "3", "--quota-file-size", "800KiB")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EFBIG):
        (root / "a").write_bytes(bytes(900_000))
    (root / "a").write_bytes(bytes(800_000))
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EDQUOT):
        (root / "b").write_bytes(bytes(800_000))
    (root / "b").write_bytes(b"")
    (root / "c").mkdir()
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EDQUOT):
        (root / "d").mkdir()
    assert "not a size" in chronicle("mount", chronicle.store, "x", "--quota-bytes", "lots", code=ExitCode.USAGE)
    chronicle.on_store("commit", "-m", "full")
    (root / "a").unlink()
    chronicle.on_store("commit", "-m", "room")
    (root / "b").write_bytes(bytes(500_000))
    said = chronicle.on_store("restore", "a", "@1", code=ExitCode.OS_ERROR)
    assert "over its quota" in said
    assert not (root / "a").exists()


def test_what_cannot_be_mounted_makes_nothing(chronicle: Command, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    for mountpoint, said in (
        (full, "is not empty"),
        (full / "file", "is not a directory"),
        (full / "file" / "below", "is not a directory"),
        (chronicle.store / "inside", "lie one in the other"),
        (tmp_path, "lie one in the other"),
    ):
        assert said in chronicle("mount", chronicle.store, mountpoint, code=ExitCode.USAGE)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    root = chronicle.mount()
    other = tmp_path / "other"
    said = chronicle("mount", other, root, code=ExitCode.CONFLICT)
    assert "is mounted at" in said
    assert f"; `chronicle unmount {root}` does" in said
    assert not other.exists()
    assert mountinfo.is_mounted(root)


def test_newer_and_foreign_stores_are_told_apart(chronicle: Command, tmp_path: Path) -> None:
    chronicle.store.mkdir()
    (chronicle.store / "format").write_text(json.dumps({"chronicle-store": 99}))
    for command in (["log"], ["diff"], ["restore", "@1"], ["fork", "x"], ["gc"], ["stats"], ["verify"]):
        assert "upgrade" in chronicle.on_store(*command, code=ExitCode.TOO_NEW)
    assert "upgrade" in chronicle("mount", chronicle.store, tmp_path / "m", code=ExitCode.TOO_NEW)
    (chronicle.store / "format").write_text("{")
    assert "is damaged" in chronicle.on_store("log", code=ExitCode.DAMAGED)


# -- bench -------------------------------------------------------------------------------------------------------------


def test_a_mount_is_measured(chronicle: Command, tmp_path: Path) -> None:
    rows = json.loads(chronicle("bench", "--dir", tmp_path, "--rounds", "1", "--json"))
    assert len(rows) == 9
    assert all(row["disk_us"] > 0 and row["ratio"] == row["mount_us"] / row["disk_us"] for row in rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("then", ["mount", "unmount"])
def test_what_a_kill_of_everything_leaves_is_no_obstacle(chronicle: Command, tmp_path: Path, then: str) -> None:
    root = chronicle.mount()
    (root / "a").write_text("kept")
    socket = chronicle.store / "run" / "zygote.sock"
    pids = [launcher.is_running(socket), *(int(str(mount["pid"])) for mount in served(socket))]
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # so that none can tidy up after another
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
    assert mountinfo.is_mounted(root)
    if then == "unmount":
        chronicle("unmount", root)
        assert not mountinfo.is_mounted(root)
    assert (chronicle.mount() / "a").read_text() == "kept"
    assert tmp_path in root.parents
