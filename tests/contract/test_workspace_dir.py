from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import Conflict, InvalidInput, StaleEpoch, UnsupportedFormat
from chronicle.system import boot as system_boot
from chronicle.testing.workspace_contract import WorkspaceContract, files_in
from chronicle.workspace.dir import workspace as dir_module
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.trees.tree import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.port import LayerSpec, Opened, Workspace


@dataclass
class DirNode:
    directory: Path
    blobs: MemoryBlobStore
    opened: list[Opened] = field(default_factory=list)
    others: list[DirNode] = field(default_factory=list)

    @property
    def layers(self) -> Path:
        return self.directory / "layers"

    def open(self, spec: LayerSpec) -> Opened:
        opened = open_dir_workspace(spec, self.blobs, self.directory / "roots" / spec.workspace_id, SystemClock())
        self.opened.append(opened)
        return opened

    def elsewhere(self) -> DirNode:
        other = DirNode(self.directory / f"node{len(self.others)}", self.blobs)
        self.others.append(other)
        return other

    def close(self) -> None:
        for other in self.others:
            other.close()
        for opened in self.opened:
            opened.workspace.close()


class TestDirWorkspace(WorkspaceContract):
    @pytest.fixture
    def node(self, tmp_path: Path) -> Iterator[DirNode]:
        made = DirNode(tmp_path, MemoryBlobStore())
        yield made
        made.close()

    def test_a_directory_of_someone_else_is_refused(self, node: DirNode) -> None:
        other = node.directory / "roots" / "w"
        other.mkdir(parents=True)
        (other / "mine").write_bytes(b"")
        with pytest.raises(InvalidInput):
            node.open(self.spec(node))
        assert (other / "mine").exists()

    def test_the_hidden_name_is_no_content(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / ".chronicle").mkdir()
        (workspace.root / ".chronicle" / "x").write_bytes(b"")
        assert workspace.seal() == workspace.base

    def test_is_opened_once(self, node: DirNode, workspace: Workspace) -> None:
        with pytest.raises(Conflict):
            node.open(self.spec(node, workspace.base))

    @pytest.mark.parametrize("damage", ["removed", "cut", "changed", "empty", "old"])
    def test_goes_on_without_what_was_remembered(self, node: DirNode, damage: str) -> None:
        workspace = node.open(self.spec(node)).workspace
        root = workspace.root
        (root / "d").mkdir()
        (root / "d" / "kept").write_text("kept")
        (root / "one").write_text("two names")
        (root / "two").hardlink_to(root / "one")
        (root / "gone").write_text("gone")
        workspace.adopt(workspace.seal())
        base = workspace.base
        (root / "gone").unlink()
        (root / "new").write_text("new")
        workspace.close()
        spoil(node.layers / "w" / "dir", damage)
        workspace = node.open(self.spec(node, base)).workspace
        sealed = workspace.seal()
        wanted = {"d": None, "d/kept": b"kept", "one": b"two names", "two": b"two names", "new": b"new"}
        assert files_in(node.blobs, sealed.tree_id) == wanted
        assert [one.op for one in workspace.history("d/kept")] == ["write"]
        assert [one.op for one in workspace.history("gone")] == ["write", "delete"]
        workspace.rollback()
        assert workspace.seal().tree_id == base.tree_id
        workspace.close()

    def test_without_what_was_remembered_nothing_is_changed(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / "f").write_text("text")
        (workspace.root / "g").hardlink_to(workspace.root / "f")
        workspace.adopt(workspace.seal())
        workspace.close()
        (node.layers / "w" / "dir").unlink()
        again = node.open(self.spec(node, workspace.base)).workspace
        assert again.seal() == workspace.base

    def test_another_epoch_recovers_what_was_there_without_remembering_it(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / "f").write_text("text")
        workspace.adopt(workspace.seal())
        (workspace.root / "new").write_text("new")
        workspace.close()
        (node.layers / "w" / "dir").unlink()
        opened = node.open(self.spec(node, workspace.base, epoch=2))
        assert opened.recovered is not None
        assert files_in(node.blobs, opened.recovered.tree_id) == {"f": b"text", "new": b"new"}
        assert [path.name for path in opened.workspace.root.iterdir()] == ["f"]
        opened.workspace.close()
        (node.layers / "w" / "dir").unlink()
        with pytest.raises(StaleEpoch):
            node.open(self.spec(node, workspace.base, epoch=1))

    def test_the_first_base_is_empty_whatever_is_there(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / "f").write_text("of the first turn")
        workspace.close()
        (node.layers / "w" / "dir").unlink()
        workspace = node.open(self.spec(node)).workspace
        assert workspace.base.tree_id == EMPTY
        assert files_in(node.blobs, workspace.seal().tree_id) == {"f": b"of the first turn"}
        workspace.rollback()
        assert not any(workspace.root.iterdir())

    def test_what_was_half_put_there_is_put_anew(self, node: DirNode, monkeypatch: pytest.MonkeyPatch) -> None:
        workspace = node.open(self.spec(node)).workspace
        for name in "abc":
            (workspace.root / name).write_text(name)
        base = workspace.seal()
        workspace.adopt(base)
        other = node.elsewhere()

        def dies(*_: object, **__: object) -> None:
            (other.directory / "roots" / "w" / "a").write_text("a")
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(dir_module, "restore", dies)
            with pytest.raises(KeyboardInterrupt):
                other.open(self.spec(other, base))
        (other.layers / "w" / "dir").unlink()
        opened = other.open(self.spec(other, base, epoch=2))
        assert opened.recovered is None
        assert opened.workspace.seal() == base

    def test_files_are_read_after_another_boot(self, node: DirNode, monkeypatch: pytest.MonkeyPatch) -> None:
        """A loss of power may take what a file held, and leave its size and times."""
        workspace = node.open(self.spec(node)).workspace
        (workspace.root / "f").write_text("text")
        workspace.adopt(workspace.seal())
        memory = workspace._manifest  # type: ignore[attr-defined]
        memory.index = {path: replace(seen, racy=False) for path, seen in memory.index.items()}
        memory.save(node.layers / "w")
        workspace.close()
        seen = memory.index[b"f"]
        entry = replace(seen.entry, content=replace(seen.entry.content, id=workspace.base.tree_id))
        memory.index[b"f"] = replace(seen, entry=entry)  # as though the file held something else then
        memory.save(node.layers / "w")
        boot = node.directory / "boot_id"
        boot.write_text("another\n")
        monkeypatch.setattr(system_boot, "_BOOT_ID", boot)
        opened = node.open(self.spec(node, workspace.base, epoch=2))
        (content,) = files_in(node.blobs, opened.workspace.seal().tree_id).values()
        assert content == b"text"

    def test_what_a_newer_version_remembers_is_left_alone(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        workspace.close()
        for name in ("dir", "owned"):
            path = node.layers / "w" / name
            kept = path.read_bytes()
            path.write_bytes(msgpack.packb((99, "who knows")))
            with pytest.raises(UnsupportedFormat):
                node.open(self.spec(node, workspace.base))
            path.write_bytes(kept)
        node.open(self.spec(node, workspace.base))

    def test_a_child_does_not_keep_it_locked(self, node: DirNode) -> None:
        workspace = node.open(self.spec(node)).workspace
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        try:
            workspace.close()
            node.open(self.spec(node, workspace.base))
        finally:
            os.close(reading)
            os.close(writing)
            os.waitpid(child, 0)


def spoil(path: Path, damage: str) -> None:
    """Make of a file what a crash or a bad disk may."""
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "changed":
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    elif damage == "old":
        path.write_bytes(msgpack.packb((1, "torn")))
    else:
        path.write_bytes(b"")
