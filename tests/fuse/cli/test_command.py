"""``chronicle``: a store, mounts of its workspaces, commits and history, as a user types it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.cli import ExitCode
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.server.client import list_mounts
from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import wait_for_end
from tests.unit.read_only import listing, without_write_access

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-c", "import sys; from chronicle.cli import main; sys.exit(main())"]
DEADLINE_S = 60


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


def test_a_workspace_from_the_first_file_to_the_second_commit(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "a").write_text("one")
    (root / "a").write_text("two")
    assert chronicle.on_store("commit", "-m", "first").startswith("commit 1 ")
    (root / "a").write_text("three")
    assert chronicle.on_store("cat", "a@1") == "one"
    assert chronicle.on_store("cat", "a") == "three"
    versions = chronicle.json("history", "a")
    assert [(item["iteration"], item["size"], item["turn"]) for item in versions] == [(1, 3, 1), (2, 3, 1), (3, 5, 2)]
    assert chronicle.json("commit", "-m", "second")["turn"] == 2
    assert chronicle.on_store("commit", "-m", "third") == "nothing changed\n"
    assert [(item["turn"], item["message"]) for item in chronicle.json("log")] == [(1, "first"), (2, "second")]
    assert chronicle.on_store("log").count("\n") == 2
    assert "write" in chronicle.on_store("history", "a")


def test_what_is_not_committed_survives_unmounting(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "a").write_text("one")
    pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
    chronicle("unmount", root)
    assert not mountinfo.is_mounted(root)
    assert pid is not None
    wait_for_end(pid)
    assert chronicle.on_store("cat", "a") == "one"
    assert chronicle.json("commit", "-m", "without a mount")["turn"] == 1
    assert (chronicle.mount() / "a").read_text() == "one"


def test_the_store_need_not_be_named_inside_of_a_mount(
    chronicle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronicle.store = tmp_path / "störe, with 100%"
    root = chronicle.mount()
    (root / "dir").mkdir()
    monkeypatch.chdir(root / "dir")
    assert chronicle("commit", "-m", "first").startswith("commit 1 ")
    monkeypatch.chdir(tmp_path)
    assert "; name the store with --store" in chronicle("log", code=ExitCode.NOT_FOUND)


def test_workspaces_of_one_store_are_apart_and_share_what_is_equal(chronicle: Command, tmp_path: Path) -> None:
    content = os.urandom(100_000)
    for name in ("left", "right"):
        chronicle("mount", chronicle.store, tmp_path / name, "-w", name)
        (tmp_path / name / "same").write_bytes(content)
        (tmp_path / name / name).touch()
        chronicle.on_store("commit", "-m", "first", "-w", name)
    assert not (tmp_path / "left" / "right").exists()
    counted = chronicle.json("stats", "-w", "left")
    assert counted["history_bytes"] == 100_000 <= counted["unique_bytes"] < 110_000
    assert (counted["commits"], counted["files"], counted["logical_bytes"]) == (1, 2, 100_000)
    assert counted["stored_bytes"] < 200_000
    chronicle("unmount", tmp_path / "left")
    assert (tmp_path / "right" / "same").read_bytes() == content


def _mounting(chronicle: Command, name: str) -> subprocess.Popen[str]:
    """Mount a workspace in a process of its own, beside the store."""
    arguments = ["mount", str(chronicle.store), str(chronicle.store.with_name(name)), "-w", name]
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workspaces_of_a_new_store_are_mounted_at_the_same_time(chronicle: Command) -> None:
    names = ["a", "b", "c"]
    mounting = [_mounting(chronicle, name) for name in names]
    for process in mounting:
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
    for name in names:
        chronicle.store.with_name(name).joinpath("file").write_text(name)
    found = list_mounts(chronicle.store / "run" / "zygote.sock")
    assert sorted(str(mount["workspace_id"]) for mount in found) == names
    for name in names:
        chronicle("unmount", chronicle.store.with_name(name))


def test_who_asks_whether_mounts_are_served_keeps_nobody_from_serving_them(chronicle: Command) -> None:
    chronicle.mount()
    chronicle.unmount()
    with launcher.lock_path(chronicle.store / "run" / "zygote.sock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as `is_alive` does for a moment
        process = _mounting(chronicle, "main")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    chronicle("unmount", chronicle.store.with_name("main"))


def test_a_store_that_cannot_be_written_is_read(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "a").write_text("one")
    (root / "b").symlink_to("a")
    (root / "dir").mkdir()
    chronicle.on_store("commit", "-m", "first")
    (root / "a").write_text("not committed")
    pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
    chronicle("unmount", root)
    assert pid is not None
    wait_for_end(pid)
    before = listing(chronicle.store)
    unseen = "changes since the last commit cannot be read"

    def read() -> None:
        assert chronicle.on_store("cat", "a") == "one"
        assert chronicle.on_store("cat", "b") == "a"
        assert [item["size"] for item in chronicle.json("history", "a")] == [3]
        assert "has iteration 1 only" in chronicle.on_store("cat", "a@2", code=ExitCode.NOT_FOUND)
        assert "no content of its own" in chronicle.on_store("cat", "dir", code=ExitCode.NOT_FOUND)
        assert "never existed" in chronicle.on_store("history", "c", code=ExitCode.NOT_FOUND)
        said = chronicle.on_store("cat", "c", code=ExitCode.NOT_FOUND)
        assert unseen in said
        assert chronicle.json("verify")[0]["problem"] is None
        assert unseen not in chronicle.said
        assert chronicle.json("stats")["files"] == 1
        assert unseen in chronicle.said
        assert len(chronicle.json("log")) == 1
        assert unseen in chronicle.said
        assert chronicle.on_store("diff") == ""
        assert chronicle.said.splitlines()[1:] == ["nothing differs in what is committed"]
        assert unseen in chronicle.said
        assert chronicle.json("diff")["files"] == []
        assert unseen in chronicle.said
        assert "+one" in chronicle.on_store("diff", "0", "1")
        assert unseen not in chronicle.said

    without_write_access(chronicle.store, read)
    assert listing(chronicle.store) == before
    assert chronicle.on_store("cat", "a") == "not committed"
    assert "+not committed" in chronicle.on_store("diff")
    assert chronicle.said == ""
    shutil.rmtree(chronicle.store / "layers")
    before = listing(chronicle.store)
    assert chronicle.on_store("cat", "a") == "one"
    assert "cannot" not in chronicle.on_store("cat", "c", code=ExitCode.NOT_FOUND)
    assert listing(chronicle.store) == before


def test_a_store_that_nothing_was_mounted_from(chronicle: Command) -> None:
    Repository(chronicle.store).create()
    before = listing(chronicle.store)
    for command in (["log"], ["history", "a"], ["cat", "a"], ["verify"], ["stats"]):
        assert "; `chronicle mount` makes one" in chronicle.on_store(*command, code=ExitCode.NOT_FOUND)
    assert listing(chronicle.store) == before


def test_verify_reads_everything_back(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "a").write_bytes(os.urandom(50_000))
    chronicle.on_store("commit", "-m", "first")
    chronicle("unmount", root)
    (check,) = chronicle.json("verify")
    assert check["events"] == 1
    assert check["problem"] is None
    pack = max((path for path in chronicle.store.glob("blobs/packs/**/*") if path.is_file()), key=_size)
    damaged = bytearray(pack.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(damaged)
    chronicle.on_store("verify", code=ExitCode.DAMAGED)


def test_in_the_foreground_it_stays_until_it_is_ended(chronicle: Command) -> None:
    command = [*COMMAND, "mount", str(chronicle.store), str(chronicle.mountpoint), "--foreground"]
    for end in (signal.SIGINT, signal.SIGKILL):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "is mounted at" in process.stderr.readline()
            pid = launcher.is_running(chronicle.store / "run" / "zygote.sock")
            (chronicle.mountpoint / "a").touch()
            process.send_signal(end)
            process.wait(60)
            assert pid is not None
            wait_for_end(pid)
            assert not mountinfo.is_mounted(chronicle.mountpoint)


def test_bad_input_is_told_in_a_line(chronicle: Command, tmp_path: Path) -> None:
    assert "is no store" in chronicle.on_store("log", code=ExitCode.NOT_FOUND)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert "not empty" in chronicle("mount", tmp_path / "other", chronicle.mountpoint, code=ExitCode.USAGE)
    assert "not empty" in chronicle("mount", chronicle.store, tmp_path / "other", code=ExitCode.USAGE)
    assert launcher.is_running(chronicle.store / "run" / "zygote.sock") is None
    assert "cannot be a workspace" in chronicle(
        "mount", chronicle.store, chronicle.mountpoint, "-w", "../up", code=ExitCode.USAGE
    )
    root = chronicle.mount()
    assert "mounted at" in chronicle("mount", chronicle.store, tmp_path / "again", code=ExitCode.CONFLICT)
    # The mistake that is the user's own comes first.
    assert "not empty" in chronicle("mount", chronicle.store, tmp_path / "other", code=ExitCode.USAGE)
    assert "never existed" in chronicle.on_store("history", "never", code=ExitCode.NOT_FOUND)
    assert "never existed" in chronicle.on_store("cat", "never@1", code=ExitCode.NOT_FOUND)
    (root / "a").touch()
    assert "iteration 9" in chronicle.on_store("cat", "a@9", code=ExitCode.NOT_FOUND)
    assert "not a path" in chronicle.on_store("history", "/a", code=ExitCode.USAGE)
    said = chronicle("unmount", tmp_path, code=ExitCode.NOT_FOUND)
    assert "nothing is mounted at" in said
    assert "--store" not in said
    assert "no workspace 'unknown'" in chronicle.on_store("log", "-w", "unknown", code=ExitCode.NOT_FOUND)
    assert "No such option" in chronicle("log", "--unknown", code=ExitCode.USAGE)
    (chronicle.store / "format").write_text('{"chronicle-store": 99}')
    assert "upgrade" in chronicle.on_store("log", code=ExitCode.TOO_NEW)


def _size(path: Path) -> int:
    return path.stat().st_size


def test_mistakes_are_told_as_what_they_are(
    chronicle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert "cannot be empty" in chronicle("mount", "", chronicle.mountpoint, code=ExitCode.USAGE)
    assert "cannot be empty" in chronicle("mount", chronicle.store, "", code=ExitCode.USAGE)
    assert "cannot be empty" in chronicle("unmount", "", code=ExitCode.USAGE)
    assert "cannot be empty" in chronicle("log", "--store", "", code=ExitCode.USAGE)
    assert "names no place" in chronicle("mount", "s3://", chronicle.mountpoint, code=ExitCode.USAGE)
    assert "one process's memory" in chronicle("mount", "memory://x", chronicle.mountpoint, code=ExitCode.USAGE)
    too_much = f"--quota-bytes={10**9}T"
    assert "more than a file" in chronicle(
        "mount", chronicle.store, chronicle.mountpoint, too_much, code=ExitCode.USAGE
    )
    for size in ("1.5", "1.M", "M", "-1", "1e3"):
        assert "not a size" in chronicle(
            "mount", chronicle.store, chronicle.mountpoint, f"--quota-bytes={size}", code=ExitCode.USAGE
        )
    assert list(tmp_path.iterdir()) == [empty]
    root = chronicle.mount("--quota-bytes", "1.5M")
    (root / "a").write_bytes(bytes(1_400_000))
    with pytest.raises(OSError, match="quota"):
        (root / "b").write_bytes(bytes(200_000))
    (root / "b").unlink(missing_ok=True)
    assert "empty" in chronicle.on_store("commit", "-m", " ", code=ExitCode.USAGE)
    assert chronicle.json("log") == []
    chronicle.on_store("commit", "-m", "first")
    for command in (["log"], ["history", "a"], ["commit", "-m", "x"], ["restore", "@1"], ["fork", "x"], ["diff"]):
        said = chronicle.on_store(*command, "-w", "nosuch", code=ExitCode.NOT_FOUND)
        assert "no workspace 'nosuch'; there is main" in said
        assert "session" not in said
    assert "@last" in chronicle.on_store("restore", "@now", code=ExitCode.USAGE)
    assert "@last" in chronicle.on_store("restore", "a", "last", code=ExitCode.USAGE)
    said = chronicle("bench", "--dir", "/nosuch", code=ExitCode.OS_ERROR)
    assert "nothing can be created in /nosuch: No such file or directory" in said
    assert "Errno" not in said


def test_a_commit_is_checked_out_by_any_name_of_it(
    chronicle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronicle.store = tmp_path / "a@store"
    root = chronicle.mount()
    for text in ("one", "two"):
        (root / "a").write_text(text)
        chronicle.on_store("commit", "-m", text)
    monkeypatch.chdir(tmp_path)
    for number, (moment, text) in enumerate({"": "two", "@1": "one", "@last": "two"}.items()):
        chronicle("checkout", f"a@store{moment}", f"mnt/../out{number}")
        assert f"is in {tmp_path}/out{number}\n" in chronicle.said
        assert (tmp_path / f"out{number}" / "a").read_text() == text
    assert "not committed" in chronicle("checkout", "a@store@now", "x", code=ExitCode.USAGE)
    assert "names no commit" in chronicle("checkout", "a@store@", "x", code=ExitCode.USAGE)
    assert "has no commit 3" in chronicle("checkout", "a@store@3", "x", code=ExitCode.NOT_FOUND)
    assert "there already" in chronicle("checkout", "a@store", f"{tmp_path}/mnt/../out0", code=ExitCode.USAGE)
    said = chronicle("checkout", "a@store", "/proc/x", code=ExitCode.OS_ERROR)
    assert "/proc/x cannot be made: No such file or directory" in said
    assert "Errno" not in said
    assert "/.x." not in said


def test_the_help_is_not_cut(chronicle: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = chronicle("--help").partition("Commands:\n")[2].partition("\n\n")[0]
    assert commands.count("\n") > 10
    assert "..." not in commands
