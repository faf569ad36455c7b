"""Real workspaces on real mounts: layers, versions and blobs behind the zygote that a node would start."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt, NotFound, Unavailable
from chronicle.fuse.mountpoints import mountinfo, mounts
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import FuseWorkspace, attach_fuse_workspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.port import LayerSpec, Opened, TreeRef
from chronicle.workspace.trees.tree import walk
from tests.fuse.conftest import served, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGES = 200
"""Of a large directory while it is listed."""


class Home:
    """A node's directories with a zygote started as a node manager does it."""

    def __init__(self, directory: Path, transport: Transport) -> None:
        self.directory = directory
        self.transport = transport
        self.socket = directory / "run" / "zygote.sock"
        self.blobs_url = f"file://{directory}/blobs"
        self.workspaces: list[FuseWorkspace] = []
        self.start()

    def start(self) -> int:
        log = self.directory / "log"
        return launcher.start(
            self.socket, self.directory / "mounts", log, os.getpid(), transport=self.transport, few_mounts=True
        )

    def open(self, name: str = "w", *, base: TreeRef | None = None, epoch: int = 1, turn: int = 1) -> Opened:
        spec = LayerSpec(name, self.directory / "layers", base, epoch, turn)
        opened = open_fuse_workspace(self.socket, spec, self.blobs_url, self.directory / "mounts" / name)
        assert isinstance(opened.workspace, FuseWorkspace)
        self.workspaces.append(opened.workspace)
        return opened

    def pid(self, name: str = "w") -> int:
        (pid,) = [mount["pid"] for mount in served(self.socket) if mount["workspace_id"] == name]
        assert isinstance(pid, int)
        return pid

    def end(self) -> None:
        for workspace in self.workspaces:
            workspace.detach()
        launcher.shut_down(self.socket)
        print((self.directory / "log").read_text())
        mounts.unmount_all_under(self.directory)

    def files(self, ref: TreeRef) -> set[bytes]:
        blobs = PackBlobStore(self.blobs_url)
        try:
            return {path for path, _ in walk(blobs, ref.tree_id)}
        finally:
            blobs.close()


@pytest.fixture
def home(tmp_path: Path, transport: Transport) -> Iterator[Home]:
    running = Home(tmp_path, transport)
    try:
        yield running
    finally:
        running.end()


@pytest.mark.one_transport
def test_versions_are_read_as_files_and_over_the_socket(home: Home) -> None:
    workspace = home.open().workspace
    path = workspace.root / "notes.txt"
    path.write_text("one")
    path.write_text("two")
    assert (workspace.root / ".chronicle/at/1/notes.txt").read_text() == "one"
    first, second = workspace.history("notes.txt")
    assert (first.iteration, first.op, first.size, first.turn) == (1, "write", 3, 1)
    assert (second.iteration, second.size) == (2, 3)
    with workspace.at("notes.txt", 1) as version:
        assert version.read() == b"one"
    with pytest.raises(NotFound):
        workspace.at("notes.txt", 3)
    with pytest.raises(NotFound):
        workspace.history("never")


def test_turns_are_sealed_and_adopted_and_given_up(home: Home) -> None:
    workspace = home.open().workspace
    empty = workspace.base
    (workspace.root / "a").write_text("turn 1")
    sealed = workspace.seal()
    assert sealed != empty
    assert workspace.base == empty
    workspace.adopt(sealed)
    workspace.begin_turn(2)
    (workspace.root / "a").write_text("turn 2")
    (workspace.root / "b").write_text("turn 2")
    failed = workspace.seal()
    workspace.rollback()
    assert (workspace.root / "a").read_text() == "turn 1"
    assert not (workspace.root / "b").exists()
    assert workspace.seal().tree_id == sealed.tree_id
    assert home.files(failed) == {b"a", b"b"}
    workspace.begin_turn(2)
    (workspace.root / "a").write_text("again")
    assert [item.iteration for item in workspace.history("a")][-1] == 3, "iteration 2 was given out before the rollback"


def test_what_was_written_survives_the_kill_of_its_server(home: Home) -> None:
    workspace = home.open().workspace
    (workspace.root / "a").write_text("acknowledged")
    with (workspace.root / "open").open("wb", buffering=0) as file:
        file.write(b"half a line")
        os.kill(home.pid(), signal.SIGKILL)
        workspace.begin_turn(1)  # answered by the next server
        with pytest.raises(OSError, match=r"not connected|aborted"):
            file.write(b" and the rest")
        with pytest.raises(OSError, match=r"not connected|aborted"):
            file.close()
    assert (workspace.root / "a").read_text() == "acknowledged"
    assert (workspace.root / "open").read_bytes() == b"half a line"
    assert [item.op for item in workspace.history("a")] == ["write"]


def test_an_adopted_tree_is_the_base_of_the_next_server(home: Home) -> None:
    workspace = home.open().workspace
    (workspace.root / "a").write_text("committed")
    sealed = workspace.seal()
    workspace.adopt(sealed)
    (workspace.root / "b").write_text("not yet")
    os.kill(home.pid(), signal.SIGKILL)
    workspace.begin_turn(2)
    assert (workspace.root / "b").read_text() == "not yet"
    workspace.rollback()
    assert {path.name for path in workspace.root.iterdir()} == {"a"}
    assert workspace.seal() == sealed


@pytest.mark.one_transport
def test_a_takeover_recovers_what_was_not_committed(home: Home) -> None:
    workspace = home.open(epoch=1).workspace
    (workspace.root / "a").write_text("committed")
    base = workspace.seal()
    workspace.adopt(base)
    (workspace.root / "b").write_text("lost turn")
    opened = home.open(base=base, epoch=2)
    assert opened.recovered is not None
    assert home.files(opened.recovered) == {b"a", b"b"}
    assert {path.name for path in opened.workspace.root.iterdir()} == {"a"}
    assert opened.workspace.base == base
    with pytest.raises(Unavailable):
        workspace.seal()


@pytest.mark.one_transport
def test_a_workspace_opens_from_the_store_on_another_node(home: Home, tmp_path: Path) -> None:
    workspace = home.open().workspace
    (workspace.root / "dir").mkdir()
    (workspace.root / "dir" / "a").write_bytes(os.urandom(300_000))
    content = (workspace.root / "dir" / "a").read_bytes()
    base = workspace.seal()
    spec = LayerSpec("w", tmp_path / "other-node", base, 1, 2)
    elsewhere = open_fuse_workspace(home.socket, spec, home.blobs_url, home.directory / "mounts" / "other")
    assert (elsewhere.workspace.root / "dir" / "a").read_bytes() == content
    assert elsewhere.workspace.seal().tree_id == base.tree_id
    elsewhere.workspace.close()


@pytest.mark.one_transport
def test_a_damaged_layer_is_refused_and_named(home: Home) -> None:
    workspace = home.open().workspace
    (workspace.root / "a").write_text("x")
    workspace.close()
    (log,) = (home.directory / "layers" / "w").glob("*/log")
    log.write_bytes(b"\0" * 64 + log.read_bytes()[64:])
    with pytest.raises(Corrupt, match="layers"):
        home.open()


@pytest.mark.one_transport
def test_another_client_attaches_to_a_mount(home: Home) -> None:
    workspace = home.open().workspace
    (workspace.root / "a").write_text("x")
    other = attach_fuse_workspace(home.socket, "w")
    assert other is not None
    assert other.root == workspace.root
    assert other.base == workspace.base
    assert other.history("a") == workspace.history("a")
    other.detach()
    assert attach_fuse_workspace(home.socket, "unknown") is None


def test_programs_work_on_a_mount(home: Home) -> None:
    root = home.open().workspace.root
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(
            command, cwd=root, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    for number in range(50):
        (root / f"file{number}").write_text(str(number))
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    assert git("status", "--short") == ""
    assert ".chronicle" not in git("ls-files")
    git("fsck", "--strict")
    database = sqlite3.connect(root / "db.sqlite")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE t (n)")
    database.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(1000)])
    database.commit()
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_starting_twice_finds_the_first_and_nothing_is_left_when_it_ends(home: Home) -> None:
    pid = launcher.is_running(home.socket)
    assert home.start() == pid
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    home.open()
    session = [path for path in Path("/proc").glob("[0-9]*") if _session(path) == os.getsid(pid)]
    assert len(session) >= 3  # the zygote, the prefork process, the server, and perhaps a spare one
    launcher.shut_down(home.socket)
    for path in session:
        wait_for_end(int(path.name))
    assert mountinfo.fuse_mounts_under(home.directory) == []


@pytest.mark.one_transport
def test_a_zygote_imports_nothing_from_where_it_is_started(
    tmp_path: Path, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "logging.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    home = Home(tmp_path, transport)
    pid = launcher.is_running(home.socket)
    assert pid is not None
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    home.end()
    wait_for_end(pid)


def test_a_zygote_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "zygote.sock.lock").mkdir()
    with pytest.raises(Unavailable, match=r"did not start.*Is a directory"):
        launcher.start(tmp_path / "run" / "zygote.sock", tmp_path / "mounts", tmp_path / "log", few_mounts=True)


def _session(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return None


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_large_directory_is_listed_whole_while_it_changes(home: Home, count: int) -> None:
    """Whatever is there all the time is listed once; what comes and goes meanwhile once or not at all.

    With either count, a server that lists the present entries from the kernel's position on is found in each run.
    """
    step = count // CHANGES
    blobs = PackBlobStore(home.blobs_url)
    with open_api_workspace(LayerSpec("maker", home.directory / "layers", None, 1, 1), blobs) as made:
        made.make_directory("d")
        for number in range(count):
            made.write(f"d/{number}", b"")
        made.adopt(made.seal())
        base = made.base
    directory = home.open(base=base).workspace.root / "d"
    staying = {str(number) for number in range(count)}
    listed: list[str] = []
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            listed.append(entry.name)
            if number % step == 0:
                (directory / f"new {number}").touch()
                for name, new in ((number, None), (count - 1 - number, f"moved {number}")):
                    if str(name) in staying:
                        staying.remove(str(name))
                        if new is None:
                            (directory / str(name)).unlink()
                        else:
                            (directory / str(name)).rename(directory / new)
    assert len(listed) == len(set(listed))
    assert staying <= set(listed)
    now = os.listdir(directory)  # noqa: PTH208 - the names are wanted
    assert len(now) == len(set(now))
    assert staying <= set(now)
    assert sum(name.startswith("new ") for name in now) == sum(1 for number in range(0, len(listed), step))
