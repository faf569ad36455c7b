"""What every `chronicle.workspace.port.Workspace` promises, as tests. For whoever writes a presentation::

    class TestMine(WorkspaceContract):
        @pytest.fixture
        def node(self, tmp_path):
            ...yield a WorkspaceNode...

Files are made and read with plain system calls below `Workspace.root`, the trees are checked by reading them from the
blob store. Needs pytest.
"""

# ruff: noqa: PTH101, PTH104, PTH108, PTH112, PTH114, PTH115, PTH116, PTH118, PTH121, PTH123, PTH208 - as programs do

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

import pytest

from chronicle.blobs.buffer import BlobBuffer
from chronicle.errors import InvalidInput, NotFound, StaleEpoch
from chronicle.workspace import content, tree
from chronicle.workspace.port import LayerSpec
from chronicle.workspace.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.store import BlobStore
    from chronicle.ids import BlobId
    from chronicle.workspace.port import Opened, TreeRef, Workspace

__all__ = ["VersionPerCloseContract", "WorkspaceContract", "WorkspaceNode", "files_below", "files_in"]

Model = dict[str, "bytes | str | None"]
"""Path → a file's bytes, a symlink's target, or None for a directory."""


class WorkspaceNode(Protocol):
    """A machine on which workspaces are opened."""

    @property
    def layers(self) -> Path:
        """Its directory of layers."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """The blob store that all nodes share."""
        ...

    def open(self, spec: LayerSpec) -> Opened:
        """Open a workspace. What is still open at the end is closed by the fixture."""
        ...

    def elsewhere(self) -> WorkspaceNode:
        """Return another machine with the same blob store."""
        ...


def files_in(blobs: BlobStore, tree_id: BlobId) -> Model:
    """Return what a tree holds."""
    found: Model = {}
    for path, entry in tree.walk(blobs, tree_id):
        if entry.content is not None:
            found[os.fsdecode(path)] = content.read(blobs, entry.content)
        else:
            found[os.fsdecode(path)] = os.fsdecode(entry.target) if entry.target else None
    return found


def files_below(root: Path) -> Model:
    """Return what a directory holds."""
    found: Model = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, root)
            if os.path.islink(path):
                found[relative] = os.readlink(path)
            elif os.path.isdir(path):
                found[relative] = None
            else:
                with open(path, "rb") as file:
                    found[relative] = file.read()
    return found


class WorkspaceContract(ABC):
    """Subclass it and give it a ``node`` fixture.

    For presentations that make a version each time a file is closed there is more, in `VersionPerCloseContract`.
    """

    @pytest.fixture
    @abstractmethod
    def node(self) -> WorkspaceNode:
        """Return a machine without any workspace."""

    def spec(
        self, node: WorkspaceNode, base: TreeRef | None = None, *, epoch: int = 1, turn: int = 0, name: str = "w"
    ) -> LayerSpec:
        """Return what opening takes."""
        return LayerSpec(workspace_id=name, layers=node.layers, base=base, epoch=epoch, turn=turn)

    @pytest.fixture
    def workspace(self, node: WorkspaceNode) -> Workspace:
        """An empty workspace in its first turn."""
        workspace = node.open(self.spec(node)).workspace
        workspace.begin_turn(1)
        return workspace

    # -- trees ----------------------------------------------------------------------------------------------------

    def test_begins_empty(self, node: WorkspaceNode) -> None:
        opened = node.open(self.spec(node))
        assert opened.recovered is None
        assert opened.workspace.base.tree_id == EMPTY
        assert os.listdir(opened.workspace.root) == []
        assert opened.workspace.seal() == opened.workspace.base

    def test_tree_holds_what_was_written(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        assert files_in(node.blobs, ref.tree_id) == expected
        assert files_below(workspace.root) == expected

    def test_same_content_same_tree(self, node: WorkspaceNode, workspace: Workspace) -> None:
        root = workspace.root
        (root / "d").mkdir(mode=0o755)
        (root / "d" / "x").write_bytes(b"data")
        (root / "d" / "x").chmod(0o640)
        (root / "d").chmod(0o755)
        (root / "s").symlink_to("d/x")
        buffer = BlobBuffer(node.blobs)
        expected = tree.update_tree(
            buffer,
            EMPTY,
            {
                b"d": Entry(Kind.DIR, 0o755),
                b"d/x": Entry(Kind.FILE, 0o640, content=content.store_bytes(buffer, b"data")),
                b"s": Entry(Kind.SYMLINK, 0o777, target=b"d/x"),
            },
        )
        assert workspace.seal().tree_id == expected

    def test_tree_does_not_depend_on_the_way(self, node: WorkspaceNode, workspace: Workspace) -> None:
        fill(workspace.root)
        one = workspace.seal()
        other = node.open(self.spec(node, name="other")).workspace
        other.begin_turn(1)
        (other.root / "gone").write_bytes(b"x" * 5000)
        (other.root / "was").mkdir()
        fill(other.root / "was")
        os.unlink(other.root / "gone")
        for name in os.listdir(other.root / "was"):
            os.rename(other.root / "was" / name, other.root / name)
        (other.root / "was").rmdir()
        assert other.seal().tree_id == one.tree_id

    def test_nothing_changed_seals_to_the_same(self, workspace: Workspace) -> None:
        fill(workspace.root)
        ref = workspace.seal()
        assert workspace.seal() == ref
        workspace.adopt(ref)
        assert workspace.base == ref
        assert workspace.seal() == ref
        files_below(workspace.root)
        assert workspace.seal() == ref

    def test_another_node_opens_it(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        os.chmod(workspace.root / "a.txt", 0o600)
        os.utime(workspace.root / "a.txt", ns=(10**18, 10**18 + 7))
        ref = workspace.seal()
        far = node.elsewhere()
        other = far.open(self.spec(far, ref, turn=2)).workspace
        assert other.base == ref
        assert files_below(other.root) == expected
        status = os.stat(other.root / "a.txt")
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_mtime_ns == 10**18 + 7
        assert other.seal() == ref

    def test_changes_cost_what_changed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        for number in range(300):
            (workspace.root / f"{number:03}").write_bytes(b"%d" % number)
        workspace.adopt(workspace.seal())
        before = len(set(node.blobs.blob_ids()))
        workspace.begin_turn(2)
        (workspace.root / "007").write_bytes(b"changed")
        workspace.adopt(workspace.seal())
        assert len(set(node.blobs.blob_ids())) - before < 20

    def test_hard_links_are_one_file(self, node: WorkspaceNode, workspace: Workspace) -> None:
        root = workspace.root
        (root / "d").mkdir()
        (root / "a").write_bytes(b"one")
        os.link(root / "a", root / "d" / "b")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        with open(root / "d" / "b", "ab") as file:
            file.write(b" two")
        ref = workspace.seal()
        assert files_in(node.blobs, ref.tree_id) == {"a": b"one two", "d": None, "d/b": b"one two"}
        far = node.elsewhere()
        other = far.open(self.spec(far, ref, turn=3)).workspace
        assert os.stat(other.root / "a").st_nlink == 2
        assert os.path.samefile(other.root / "a", other.root / "d" / "b")
        other.begin_turn(3)
        with open(other.root / "a", "ab") as file:
            file.write(b" three")
        found = files_in(node.blobs, other.seal().tree_id)
        assert found == {"a": b"one two three", "d": None, "d/b": b"one two three"}

    def test_names_and_contents_of_any_bytes(self, node: WorkspaceNode, workspace: Workspace) -> None:
        names = [b"\xff\xfe", b"new\nline", "ümläut".encode(), b" ", b"x" * 255, b"-rf", b".hidden"]
        for name in names:
            with open(os.path.join(os.fsencode(workspace.root), name), "wb") as file:
                file.write(name + b"\0" * 100)
        found = files_in(node.blobs, workspace.seal().tree_id)
        assert found == {os.fsdecode(name): name + b"\0" * 100 for name in names}

    def test_extended_attributes(self, node: WorkspaceNode, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"")
        try:
            os.setxattr(file, "user.one", b"1")
        except OSError:
            return  # this file system has none
        first = workspace.seal()
        entry = tree.entry_at(node.blobs, first.tree_id, b"a")
        assert entry is not None
        assert entry.xattrs == ((b"user.one", b"1"),)
        os.removexattr(file, "user.one")
        assert workspace.seal().tree_id != first.tree_id

    def test_devices(self, node: WorkspaceNode, workspace: Workspace) -> None:
        made = {"whiteout": (stat.S_IFCHR | 0o600, os.makedev(0, 0))}  # the one that anybody may make
        if os.geteuid() == 0:
            made["null"] = (stat.S_IFCHR | 0o666, os.makedev(1, 3))
            made["disk"] = (stat.S_IFBLK | 0o660, os.makedev(4095, 0xFFFFF))  # the largest that there are
        for name, (mode, device) in made.items():
            os.mknod(workspace.root / name, mode, device)
            os.chmod(workspace.root / name, stat.S_IMODE(mode))
        first = workspace.seal()
        far = node.elsewhere()
        other = far.open(self.spec(far, first, turn=2)).workspace
        for root in (workspace.root, other.root):
            found = {name: os.lstat(root / name) for name in made}
            assert {name: (status.st_mode, status.st_rdev) for name, status in found.items()} == made
        assert other.seal() == first
        os.unlink(workspace.root / "whiteout")
        os.mkfifo(workspace.root / "whiteout", 0o600)
        second = workspace.seal()
        entry = tree.entry_at(node.blobs, second.tree_id, b"whiteout")
        assert entry is not None
        assert (entry.kind, entry.device) == (Kind.FIFO, None)

    # -- turns ----------------------------------------------------------------------------------------------------

    def test_changes_after_the_seal_stay_changed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        (workspace.root / "a").write_bytes(b"two!")
        (workspace.root / "b").write_bytes(b"new")
        workspace.adopt(first)
        assert files_in(node.blobs, first.tree_id) == {"a": b"one"}
        second = workspace.seal()
        assert files_in(node.blobs, second.tree_id) == {"a": b"two!", "b": b"new"}
        workspace.adopt(second)

    def test_only_what_was_sealed_last_is_adopted(self, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        first = workspace.seal()
        (workspace.root / "a").write_bytes(b"other")
        workspace.seal()
        with pytest.raises(InvalidInput):
            workspace.adopt(first)

    def test_rollback_gives_back_the_base(self, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        workspace.rollback()
        assert files_below(workspace.root) == expected
        assert workspace.seal().tree_id == ref.tree_id
        assert workspace.base == ref

    def test_rollback_of_what_was_sealed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        failed = workspace.seal()
        workspace.rollback()
        assert files_below(workspace.root) == expected
        assert files_in(node.blobs, failed.tree_id) != expected
        (workspace.root / "a.txt").write_bytes(b"again")
        assert files_in(node.blobs, workspace.seal().tree_id) == {**expected, "a.txt": b"again"}

    def test_numbers_are_not_given_out_again(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        file.write_bytes(b"two!")
        workspace.seal()
        given = workspace.history("a")[-1].iteration
        assert given == 2
        workspace.rollback()
        assert [item.iteration for item in workspace.history("a")] == [1]
        file.write_bytes(b"three")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 3]

    # -- history --------------------------------------------------------------------------------------------------

    def test_history_of_a_file(self, node: WorkspaceNode, workspace: Workspace) -> None:
        file = workspace.root / "d" / "a"
        file.parent.mkdir()
        contents = [b"one", b"two, longer", b"three"]
        for turn, data in enumerate(contents, 1):
            workspace.begin_turn(turn)
            file.write_bytes(data)
            workspace.adopt(workspace.seal())
        history = workspace.history("d/a")
        assert [item.iteration for item in history] == [1, 2, 3]
        assert [item.op for item in history] == ["write", "write", "write"]
        assert [item.size for item in history] == [len(data) for data in contents]
        assert [item.turn for item in history] == [1, 2, 3]
        assert [item.timestamp for item in history] == sorted(item.timestamp for item in history)
        entry = tree.entry_at(node.blobs, workspace.base.tree_id, b"d/a")
        assert entry is not None
        assert entry.content is not None
        assert history[-1].hash == entry.content.id
        for item, data in zip(history, contents, strict=True):
            with workspace.at("d/a", item.iteration) as opened:
                assert opened.read() == data

    def test_history_says_what_happened(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "a").write_bytes(b"one")
        (root / "empty").write_bytes(b"")
        (root / "s").symlink_to("a")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "a").chmod(0o600)
        (root / "empty").unlink()
        workspace.adopt(workspace.seal())
        workspace.begin_turn(3)
        (root / "a").rename(root / "b")
        workspace.adopt(workspace.seal())
        assert ops(workspace, "a") == ["write", "mode", "delete"]
        assert ops(workspace, "b") == ["rename"]
        assert workspace.history("b")[0].source == "a"
        assert ops(workspace, "empty") == ["create", "delete"]
        assert ops(workspace, "s") == ["symlink"]
        gone = workspace.history("a")[-1]
        assert (gone.size, gone.hash, gone.turn) == (0, "", 3)
        with workspace.at("a", 1) as old, workspace.at("b", 1) as new:
            assert old.read() == new.read() == b"one"

    def test_history_goes_on_after_a_deletion(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        for turn, data in enumerate([b"one", None, b"two"], 1):
            workspace.begin_turn(turn)
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)
            workspace.adopt(workspace.seal())
        assert [(item.iteration, item.op) for item in workspace.history("a")] == [
            (1, "write"),
            (2, "delete"),
            (3, "write"),
        ]
        with pytest.raises(NotFound):
            workspace.at("a", 2)

    def test_history_travels(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        here = workspace.history("a")
        far = node.elsewhere()
        other = far.open(self.spec(far, workspace.base, turn=2)).workspace
        assert list(other.history("a")) == list(here)
        other.begin_turn(2)
        (other.root / "a").write_bytes(b"two")
        other.adopt(other.seal())
        assert [item.iteration for item in other.history("a")] == [1, 2]
        assert [item.iteration for item in workspace.history("a")] == [1]

    def test_what_never_was_has_no_history(self, workspace: Workspace) -> None:
        (workspace.root / "a").write_bytes(b"one")
        workspace.seal()
        with pytest.raises(NotFound):
            workspace.history("b")
        with pytest.raises(NotFound):
            workspace.at("b", 1)
        with pytest.raises(NotFound):
            workspace.at("a", 99)
        for path in ("/a", "../a", "./a", "d/../a"):
            with pytest.raises(InvalidInput):
                workspace.history(path)

    # -- opening --------------------------------------------------------------------------------------------------

    def test_the_same_epoch_goes_on(self, node: WorkspaceNode, workspace: Workspace) -> None:
        base = workspace.base
        expected = fill(workspace.root)
        workspace.close()
        opened = node.open(self.spec(node, base, turn=1))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        assert files_in(node.blobs, opened.workspace.seal().tree_id) == expected

    def test_a_newer_epoch_recovers(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        spoil(workspace.root)
        spoilt = files_below(workspace.root)
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=2, turn=2))
        assert opened.recovered is not None
        assert files_in(node.blobs, opened.recovered.tree_id) == spoilt
        assert files_below(opened.workspace.root) == expected
        assert opened.workspace.base == ref
        assert opened.workspace.seal().tree_id == ref.tree_id

    def test_a_newer_epoch_takes_over_what_is_clean(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=7, turn=2))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        opened.workspace.close()
        with pytest.raises(StaleEpoch):
            node.open(self.spec(node, ref, epoch=2, turn=2))

    def test_a_commit_that_was_not_adopted(self, node: WorkspaceNode, workspace: Workspace) -> None:
        expected = fill(workspace.root)
        ref = workspace.seal()
        workspace.close()
        for epoch in (1, 2):
            opened = node.open(self.spec(node, ref, epoch=epoch, turn=2))
            assert opened.recovered is None
            assert opened.workspace.base == ref
            assert files_below(opened.workspace.root) == expected
            opened.workspace.close()

    def test_another_node_went_on(self, node: WorkspaceNode, workspace: Workspace) -> None:
        fill(workspace.root)
        first = workspace.seal()
        workspace.adopt(first)
        workspace.close()
        far = node.elsewhere()
        other = far.open(self.spec(far, first, epoch=2, turn=2)).workspace
        other.begin_turn(2)
        spoil(other.root)
        second = other.seal()
        other.adopt(second)
        expected = files_below(other.root)
        opened = node.open(self.spec(node, second, epoch=3, turn=3))
        assert opened.recovered is None
        assert files_below(opened.workspace.root) == expected
        assert opened.workspace.seal().tree_id == second.tree_id

    def test_numbers_are_not_given_out_again_after_recovery(self, node: WorkspaceNode, workspace: Workspace) -> None:
        file = workspace.root / "a"
        file.write_bytes(b"one")
        ref = workspace.seal()
        workspace.adopt(ref)
        workspace.begin_turn(2)
        file.write_bytes(b"two!")
        workspace.close()
        opened = node.open(self.spec(node, ref, epoch=2, turn=2))
        assert opened.recovered is not None
        workspace = opened.workspace
        workspace.begin_turn(2)
        (workspace.root / "a").write_bytes(b"three")
        workspace.adopt(workspace.seal())
        assert [item.iteration for item in workspace.history("a")] == [1, 3]

    @pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 129, "sp ace"])
    def test_ids_that_cannot_be(self, node: WorkspaceNode, name: str) -> None:
        with pytest.raises(InvalidInput):
            node.open(self.spec(node, name=name))


class VersionPerCloseContract(WorkspaceContract):
    """For presentations that see each operation."""

    def test_each_close_is_a_version(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        for data in (b"one", b"two!", b""):
            file.write_bytes(data)
        with file.open("r+b") as opened:
            opened.write(b"x" * 100_000)
        with file.open("r+b") as opened:
            opened.seek(50_000)
            opened.write(b"y")
        assert ops(workspace, "a") == ["write"] * 5
        seen = [workspace.at("a", number).read() for number in range(1, 6)]
        assert seen[:3] == [b"one", b"two!", b""]
        assert seen[3] == b"x" * 100_000
        assert seen[4] == b"x" * 50_000 + b"y" + b"x" * 49_999
        workspace.adopt(workspace.seal())
        assert [workspace.at("a", number).read() for number in range(1, 6)] == seen

    def test_what_happened_within_a_turn(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "a").write_bytes(b"one")
        (root / "a").chmod(0o600)
        os.link(root / "a", root / "l")
        (root / "a").rename(root / "b")
        (root / "b").unlink()
        (root / "a").write_bytes(b"again")
        os.setxattr(root / "a", "user.one", b"1")
        assert ops(workspace, "a") == ["write", "mode", "delete", "write", "xattr"]
        assert ops(workspace, "b") == ["rename", "delete"]
        assert ops(workspace, "l") == ["link"]
        assert workspace.history("l")[0].source == "a"
        with workspace.at("a", 2) as first, workspace.at("b", 1) as moved:
            assert first.read() == moved.read() == b"one"

    def test_saving_by_rename(self, workspace: Workspace) -> None:
        root = workspace.root
        for data in (b"one", b"two", b"three"):
            (root / ".new").write_bytes(data)
            (root / ".new").rename(root / "a")
        assert ops(workspace, "a") == ["rename"] * 3
        assert [workspace.at("a", number).read() for number in (1, 2, 3)] == [b"one", b"two", b"three"]

    def test_a_renamed_directory(self, workspace: Workspace) -> None:
        root = workspace.root
        (root / "d" / "e").mkdir(parents=True)
        (root / "d" / "e" / "a").write_bytes(b"one")
        workspace.adopt(workspace.seal())
        workspace.begin_turn(2)
        (root / "d").rename(root / "n")
        for sealed in (False, True):
            if sealed:
                workspace.adopt(workspace.seal())
                workspace.begin_turn(3)
            assert [(item.op, item.source) for item in workspace.history("n/e/a")] == [("rename", "d/e/a")]
            assert ops(workspace, "d/e/a") == ["write", "delete"]
            assert workspace.at("n/e/a", 1).read() == b"one"
        (root / "n" / "e" / "a").write_bytes(b"two")
        (root / "n").rename(root / "d")
        workspace.adopt(workspace.seal())
        assert ops(workspace, "n/e/a") == ["rename", "write", "delete"]
        assert ops(workspace, "d/e/a") == ["write", "delete", "rename"]
        assert workspace.at("d/e/a", 3).read() == b"two"

    def test_a_long_history(self, workspace: Workspace) -> None:
        file = workspace.root / "a"
        total = 0
        for turn in range(1, 8):
            workspace.begin_turn(turn)
            for _ in range(37):
                total += 1
                file.write_bytes(b"%d" % total)
            workspace.adopt(workspace.seal())
        history = workspace.history("a")
        assert [item.iteration for item in history] == list(range(1, total + 1))
        for number in (1, 2, 16, 17, 100, total - 20, total):
            assert workspace.at("a", number).read() == b"%d" % number

    def test_a_file_that_stays_open(self, node: WorkspaceNode, workspace: Workspace) -> None:
        with open(workspace.root / "a", "wb", buffering=0) as file:
            file.write(b"one")
            first = workspace.seal()
            workspace.adopt(first)
            workspace.begin_turn(2)
            file.write(b" two")
            second = workspace.seal()
            workspace.adopt(second)
        assert files_in(node.blobs, first.tree_id) == {"a": b"one"}
        assert files_in(node.blobs, second.tree_id) == {"a": b"one two"}
        assert [item.turn for item in workspace.history("a")] == [1, 2]


def ops(workspace: Workspace, path: str) -> list[str]:
    """Return what happened to a path."""
    return [item.op for item in workspace.history(path)]


def fill(root: Path) -> Model:
    """Put some of everything into a directory; return what it holds then."""
    (root / "a.txt").write_bytes(b"hello\n")
    (root / "empty").write_bytes(b"")
    (root / "d" / "e").mkdir(parents=True)
    (root / "hollow").mkdir()
    (root / "d" / "big").write_bytes(bytes(range(256)) * 1000)
    (root / "d" / "e" / "f").write_bytes(b"deep")
    (root / "link").symlink_to("d/e/f")
    (root / "dangling").symlink_to("nowhere")
    return {
        "a.txt": b"hello\n",
        "empty": b"",
        "d": None,
        "d/e": None,
        "hollow": None,
        "d/big": bytes(range(256)) * 1000,
        "d/e/f": b"deep",
        "link": "d/e/f",
        "dangling": "nowhere",
    }


def spoil(root: Path) -> None:
    """Change what `fill` made in every way there is."""
    (root / "a.txt").write_bytes(b"HELLO\n")
    os.utime(root / "a.txt", ns=(1, 1))
    (root / "empty").chmod(0o400)
    with (root / "d" / "big").open("r+b") as file:
        file.seek(100_000)
        file.write(b"changed")
    (root / "d" / "e").rename(root / "moved")
    (root / "hollow").rmdir()
    (root / "hollow").write_bytes(b"a file now")
    (root / "link").unlink()
    (root / "dangling").unlink()
    (root / "dangling").symlink_to("elsewhere")
    (root / "new").mkdir()
    (root / "new" / "file").write_bytes(b"new")
