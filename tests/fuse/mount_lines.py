"""A mounted workspace beside the model of it: what the state machine of `tests/fuse/workspace/test_mount_model.py`
works on.

A line is one workspace: it has its commits, may be rolled back, taken over by a newer epoch, killed, and forked into
another line. Each of these says here what must be seen after it.
"""

# ruff: noqa: PTH114, PTH115, PTH116, PTH118, PTH112, PTH123 - calls

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import StaleEpoch, Unavailable
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.fuse.conftest import served
from tests.stateful.world import File, Numbers, Open, World

if TYPE_CHECKING:
    from chronicle.workspace.port import Opened

KILLS = 4
"""Of one mount; a server that dies five times in half a minute is given up."""


@dataclass(frozen=True)
class Commit:
    """A commit of a line, from which others can be forked."""

    turn: int
    ref: TreeRef
    world: World


class Line:
    """One workspace.

    Args:
        node: where the zygote listens and mounts are made.
        spec: how it is opened.
        blobs_url: where all lines have their blobs.
        commits: those that it begins with; the last one is `spec.base`.
    """

    def __init__(self, node: Path, spec: LayerSpec, blobs_url: str, commits: list[Commit]) -> None:
        self.node = node
        self.spec = spec
        self.blobs_url = blobs_url
        self.commits = commits
        self.committed = commits[-1].world if commits else World()
        self.world = self.committed.copy()
        self.sealed: tuple[TreeRef, World] | None = None
        self.on_base: list[tuple[TreeRef, World]] = []
        """What attempts sealed on top of the last commit."""
        self.numbers = Numbers()
        self.open_files: list[Open[int]] = []
        self.kills = 0
        self.take(self.open(self.mountpoint(0)))

    # -- mounting -------------------------------------------------------------------------------------------------

    def mountpoint(self, place: int) -> Path:
        return self.node / "mounts" / self.spec.layers.parent.name / f"{self.spec.workspace_id}-{place}"

    def open(self, mountpoint: Path) -> Opened:
        return open_fuse_workspace(self.node / "zygote.sock", self.spec, self.blobs_url, mountpoint)

    def take(self, opened: Opened) -> None:
        assert isinstance(opened.workspace, FuseWorkspace)
        self.workspace = opened.workspace
        self.root = str(self.workspace.root)
        self.workspace.begin_turn(self.turn)

    @property
    def turn(self) -> int:
        """The one that is going on."""
        return self.commits[-1].turn + 1 if self.commits else 1

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def end(self) -> None:
        """Unmount it, and read every blob of its last tree."""
        try:
            self.let_go()
            ref = self.workspace.seal()
        finally:
            self.workspace.close()
        blobs = PackBlobStore(self.blobs_url)
        TreeChecker(blobs).check(ref)
        blobs.close()

    def let_go(self) -> None:
        """Close what is open."""
        for opened in self.open_files:
            with suppress(OSError):  # closing tells the server, which may not be there
                os.close(opened.handle)
        self.open_files.clear()

    # -- turns and ends -------------------------------------------------------------------------------------------

    def seal(self) -> None:
        self.world.settle_all()
        self.sealed = self.workspace.seal(), self.world.copy()
        self.on_base.append(self.sealed)

    def adopt(self) -> None:
        assert self.sealed is not None
        self.workspace.adopt(self.sealed[0])
        self.note_commit()
        self.workspace.begin_turn(self.turn)

    def note_commit(self) -> None:
        """What was sealed is committed."""
        assert self.sealed is not None
        ref, self.committed = self.sealed
        self.sealed = None
        self.on_base.clear()
        self.commits.append(Commit(self.turn, ref, self.committed))

    def rollback(self) -> None:
        """Everything since the last commit is given up, and what was open is cut off."""
        self.check_history()  # the numbers of what is given up are known from here on
        self.workspace.rollback()
        self.check_cut_off(reads=True)
        self.give_up()

    def move_to(self, pick: int) -> None:
        """What an attempt on the last commit sealed is taken over, or the commit itself, below what is open."""
        self.check_history()  # the numbers of what is given up are known from here on
        sealed = [*self.on_base, (self.workspace.base, self.committed)]
        ref, then = sealed[pick % len(sealed)]
        self.workspace.move_to(ref)
        self.world = then.copy()
        base = self.workspace.base
        if not self.commits and ref.tree_id == base.tree_id:  # the first trees of all epochs are one base
            ref = base
        self.sealed = (ref, then) if ref != base else None
        files = {os.lstat(self.at(path)).st_ino: file for path, file in self.world.files.items() if file is not None}
        for opened in self.open_files:
            status = os.fstat(opened.handle)
            if status.st_nlink:
                opened.file = files[status.st_ino]
            assert os.pread(opened.handle, 1 << 23, 0) == opened.file.content
        assert self.workspace.seal() == ref or self.sealed is None
        self.check_history()

    def kill(self) -> None:
        """The server is killed; another one serves what was acknowledged. What was open is not any more."""
        self.world.died()
        self.kill_server()
        self.let_go()
        self.workspace.begin_turn(self.turn)  # answered when there is another server

    def kill_server(self) -> None:
        (mount,) = [item for item in served(self.node / "zygote.sock") if item["mountpoint"] == self.root]
        pid = mount["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        self.kills += 1

    def take_over(self, *, kill: bool, told: bool, move: bool) -> None:
        """A newer epoch opens the workspace while the older one has it mounted.

        What was not committed is found by it, as a tree, and is not in the mount any more.

        Args:
            kill: the older one's server just before that.
            told: if something was sealed, it was committed, and only the older epoch was not told.
            move: mount it in another place.
        """
        self.check_history()
        old, old_spec, old_root = self.workspace, self.spec, self.root
        found = self.world.contents()
        if told and self.sealed is not None:
            self.note_commit()
        if kill:
            self.kill_server()
        base = self.commits[-1].ref if self.commits else None
        self.spec = replace(old_spec, base=base, epoch=old_spec.epoch + 1, turn=self.turn)
        self.kills = 0
        opened = self.open(self.mountpoint(self.spec.epoch) if move else Path(old_root))
        if opened.recovered is None:
            assert found == self.committed.contents()
        else:
            blobs = PackBlobStore(self.blobs_url)
            TreeChecker(blobs).check(opened.recovered)
            assert files_in(blobs, opened.recovered.tree_id) == found
            blobs.close()
        self.check_cut_off(reads=not kill)
        with pytest.raises(Unavailable):
            old.seal()
        old.detach()
        with pytest.raises(StaleEpoch):
            open_fuse_workspace(self.node / "zygote.sock", old_spec, self.blobs_url, self.mountpoint(0))
        if move:
            assert not mountinfo.is_mounted(Path(old_root))
        self.take(opened)
        self.give_up()

    def give_up(self) -> None:
        """Be at the last commit again, and make a version where one was given up: under a number of its own."""
        given_up, self.world = self.world, self.committed.copy()
        self.sealed = None
        for path, versions in given_up.history.items():
            if len(versions) > len(self.world.history.get(path, [])):
                file = self.world.create(path) if self.world.is_free(path) else self.world.regular(path)
                if file is not None:
                    fd = os.open(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                    self.world.empty(file)
                    assert os.write(fd, b"after") == 5
                    os.close(fd)
                    self.world.write_at_once(file, 0, b"after")
                    break
        self.check_history()

    def fork(self, name: str, back: int, layers: Path) -> Line:
        """Begin another line at a commit: it has that one's tree and history, by the same numbers.

        Args:
            name: the workspace's.
            back: so many commits before the last.
            layers: of the node where it is mounted; if not this line's, nothing of its content is there.
        """
        commits = self.commits[: len(self.commits) - back]
        base = commits[-1]
        fork = Line(self.node, LayerSpec(name, layers, base.ref, 1, base.turn + 1), self.blobs_url, list(commits))
        for path, expected in fork.world.history.items():
            if not fork.was_directory(path) and not self.was_directory(path):
                assert fork.rows(path) == self.rows(path)[: len(expected)], path
        fork.check_history()
        return fork

    def check_cut_off(self, *, reads: bool) -> None:
        """See that who had files open before can neither write nor read them.

        Args:
            reads: whether the server had the time to drop what the kernel has cached.
        """
        for opened in self.open_files:
            with pytest.raises(OSError, match=r"\[Errno"):
                os.pwrite(opened.handle, b"late", 0)
            if reads and opened.file.content:
                with pytest.raises(OSError, match=r"\[Errno"):
                    os.pread(opened.handle, 1, 0)
        self.let_go()

    # -- what must hold -------------------------------------------------------------------------------------------

    def check_tree(self) -> None:
        """See that what is there is what should be."""
        found: dict[str, Any] = {}
        for directory, directories, files in os.walk(self.root):
            for name in (*directories, *files):
                path = os.path.join(directory, name)[len(self.root) + 1 :]
                found[path] = self.look_at(path)
        expected = {path: self.expected(file) for path, file in self.world.files.items()}
        assert found == expected

    def look_at(self, path: str) -> Any:
        full = self.at(path)
        if os.path.islink(full):
            return ("link", os.readlink(full), os.lstat(full).st_nlink)
        if os.path.isdir(full):
            return "dir"
        with open(full, "rb") as file:
            content = file.read()
        status = os.stat(full)
        assert status.st_size == len(content)
        xattrs = {name: os.getxattr(full, name) for name in os.listxattr(full)}
        return (content, status.st_mode & 0o777, status.st_nlink, xattrs)

    def expected(self, file: File | None) -> Any:
        if file is None:
            return "dir"
        links = len(self.world.paths_of(file))
        if file.target is not None:
            return ("link", file.target, links)
        return (file.content, file.mode, links, file.xattrs)

    def was_directory(self, path: str) -> bool:
        """Whether history shows a directory: it is one, or what is not a file now was one last, or has any below."""
        if self.world.kind(path) is not None:
            return self.world.kind(path) == "dir"
        last = [what for what in self.world.history[path] if what is not None][-1:]
        return last == ["dir"] or any(other.startswith(path + "/") for other in self.world.history)

    def rows(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(Path(self.at(f".chronicle/query/{path}")).read_text())
        return found

    def check_history(self) -> None:
        """See that each path's versions, by ``query`` and ``at``, and each turn's tree are those of the model."""
        for path, expected in self.world.history.items():
            if self.was_directory(path):
                continue
            rows = self.rows(path)
            self.numbers.see(path, [(row["iteration"], row["timestamp"]) for row in rows], expected)
            for row, what in zip(rows, expected, strict=True):
                at = Path(self.at(f".chronicle/at/{row['iteration']}/{path}"))
                if isinstance(what, bytes):
                    assert row["size"] == len(what)
                    if at.is_symlink():
                        assert os.readlink(at).encode() == what
                    else:
                        assert at.read_bytes() == what
                else:
                    assert (row["op"] == "delete") == (what is None)
        for turn, files in ((0, {}), *((commit.turn, commit.world.files) for commit in self.commits)):
            root = Path(self.at(f".chronicle/turn/{turn}"))
            assert {str(path.relative_to(root)) for path in root.rglob("*")} == set(files)
            for path, file in files.items():
                if file is not None and file.target is None:
                    assert (root / path).read_bytes() == file.content
