"""Trees that seals make of files."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.testing.workspace_contract.contract import Contract
from chronicle.testing.workspace_contract.files import files_below, files_in, fill
from chronicle.workspace.content import content
from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from chronicle.testing.workspace_contract.contract import WorkspaceNode
    from chronicle.workspace.port import Workspace

__all__ = ["TreeContract"]


class TreeContract(Contract):
    """A tree has what was written, all of it and nothing else, whichever way it came there."""

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

    def test_times_of_the_epoch_and_before_are_kept(self, node: WorkspaceNode, workspace: Workspace) -> None:
        times = {"a.txt": 0, "early": -(10**18), "kept": 0}
        (workspace.root / "kept").mkdir()
        for name, time_ns in times.items():
            if name != "kept":
                (workspace.root / name).write_bytes(b"text")
            os.utime(workspace.root / name, ns=(time_ns, time_ns))
        far = node.elsewhere()
        other = far.open(self.spec(far, workspace.seal(), turn=2)).workspace
        assert {name: os.stat(other.root / name).st_mtime_ns for name in times} == times

    def test_a_time_that_cannot_be_stored_is_the_nearest(self, node: WorkspaceNode, workspace: Workspace) -> None:
        (workspace.root / "late").write_bytes(b"text")
        os.utime(workspace.root / "late", ns=(0, 10**20))
        kept_ns = min(os.stat(workspace.root / "late").st_mtime_ns, (1 << 64) - 1)  # a disk clamps it, too
        assert kept_ns > 10**19
        far = node.elsewhere()
        other = far.open(self.spec(far, workspace.seal(), turn=2)).workspace
        assert os.stat(other.root / "late").st_mtime_ns == kept_ns

    def test_changes_cost_what_changed(self, node: WorkspaceNode, workspace: Workspace) -> None:
        for number in range(300):
            (workspace.root / f"{number:03}").write_bytes(b"%d" % number)
        workspace.adopt(workspace.seal())
        before = len(set(node.blobs.blob_ids()))
        workspace.begin_turn(2)
        (workspace.root / "007").write_bytes(b"changed")
        workspace.adopt(workspace.seal())
        assert len(set(node.blobs.blob_ids())) - before < 20

    def test_what_all_versions_take_is_counted(self, node: WorkspaceNode, workspace: Workspace) -> None:
        root = workspace.root
        large = os.urandom(300_000)

        def kept_by(turn: int) -> int:
            ref = workspace.seal()
            workspace.adopt(ref)
            workspace.begin_turn(turn + 1)
            return read_root(node.blobs, ref.oplog_id).kept_bytes

        (root / "f").write_bytes(bytes(1000))
        (root / "large").write_bytes(large)
        assert kept_by(1) == 301_000
        (root / "f").write_bytes(b"x" * 1000)
        assert kept_by(2) == 302_000
        (root / "f").write_bytes(b"x" * 1000)  # nothing new
        (root / "f").chmod(0o600)
        os.link(root / "f", root / "g")
        (root / "large").rename(root / "moved")
        assert kept_by(3) == 302_000
        with open(root / "moved", "ab") as file:
            file.write(b"end")
        assert 302_003 <= kept_by(4) <= 302_000 + 3 + MAX_CHUNK_BYTES
        before = kept_by(5)
        (root / "f").unlink()
        (root / "g").unlink()
        (root / "moved").unlink()
        assert kept_by(6) == before

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
