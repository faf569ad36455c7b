"""Workspaces in memory on simulated nodes, for simulations that open thousands of them.

A node keeps one layer per workspace, as a real one does on its disk. The layer outlives its process; a newer epoch cuts
off the older one, and uncommitted changes are recovered. Files are names and bytes only; `ScratchWorkspace.root` is not
a directory but a name that distinguishes workspaces.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from chronicle.blobs.ident import blob_id
from chronicle.canonical import encode
from chronicle.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from chronicle.workspace.port import Iteration, Opened, TreeRef

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from chronicle.ids import BlobId

__all__ = ["CutOff", "Files", "ScratchNode", "ScratchTrees", "ScratchWorkspace"]

Files: TypeAlias = dict[str, str]
"""The content of a workspace: path to text."""


class CutOff(OSError):
    """The workspace was cut off by a newer epoch: I/O on it fails."""


@dataclass(slots=True)
class ScratchTrees:
    """The sealed trees: a blob store shared by all nodes."""

    trees: dict[BlobId, Files] = field(default_factory=dict)
    seals: int = 0
    bases: dict[BlobId, BlobId] = field(default_factory=dict)
    """By commit, the tree that it was sealed on top of."""

    def keep(self, files: Files) -> TreeRef:
        """Make a tree durable."""
        tree_id = blob_id(encode(dict(files)))
        self.trees.setdefault(tree_id, dict(files))
        self.seals += 1
        return TreeRef(tree_id, blob_id(f"{tree_id} {self.seals}".encode()))

    def files(self, ref: TreeRef | None) -> Files:
        """Return a copy of a tree's files.

        Raises:
            NotFound: it was never sealed.
        """
        if ref is None:
            return {}
        if ref.tree_id not in self.trees:
            raise NotFound(f"no tree {ref.tree_id}")
        return dict(self.trees[ref.tree_id])


@dataclass(slots=True)
class _Layer:
    """A node's layer of a workspace."""

    epoch: int
    base: TreeRef
    sealed: TreeRef
    files: Files
    owner: ScratchWorkspace | None = None


class ScratchNode:
    """A machine with layers on its disk.

    Args:
        forest: the store of sealed trees.
    """

    def __init__(self, name: str, forest: ScratchTrees) -> None:
        self.name = name
        self._forest = forest
        self._layers: dict[str, _Layer] = {}

    def open(self, workspace_id: str, base: TreeRef | None, epoch: int) -> Opened:
        """Open a workspace under an epoch, from a base, and cut off an older epoch.

        Raises:
            StaleEpoch: a newer epoch has opened it.
        """
        before = self._layers.get(workspace_id)
        recovered = None
        if before is not None:
            if before.epoch > epoch:
                raise StaleEpoch(epoch, before.epoch)
            if before.owner is not None:
                before.owner.cut_off = True
            own = before.base if before.sealed != base else before.sealed
            if before.files not in (self._forest.files(own), self._forest.files(base)):
                recovered = self._forest.keep(before.files)
        start = base or self._forest.keep({})
        layer = _Layer(epoch, start, start, self._forest.files(start))
        self._layers[workspace_id] = layer
        layer.owner = ScratchWorkspace(Path("/scratch", self.name, workspace_id), layer, self._forest)
        return Opened(layer.owner, recovered)

    def lose_power(self, generator: random.Random) -> None:
        """Replace unsynced writes of each layer by what a disk may have of them: old, new or truncated."""
        for layer in self._layers.values():
            synced = self._forest.files(layer.sealed)
            for path in sorted(synced.keys() | layer.files.keys()):
                if layer.files.get(path) != synced.get(path):
                    _tear(layer.files, path, synced.get(path), generator)


def _tear(files: Files, path: str, synced: str | None, generator: random.Random) -> None:
    match generator.randrange(3):
        case 0 if synced is None:
            files.pop(path, None)
        case 0 if synced is not None:
            files[path] = synced
        case 1 if path in files:
            files[path] = files[path][: generator.randrange(len(files[path]) + 1)]


class ScratchWorkspace:
    """A `chronicle.workspace.port.Workspace` in memory. Made by `ScratchNode.open`."""

    def __init__(self, root: Path, layer: _Layer, forest: ScratchTrees) -> None:
        self._root = root
        self._layer = layer
        self._forest = forest
        self._turn = 0
        self._history: dict[str, list[tuple[Iteration, str]]] = {}
        self.cut_off = False

    @property
    def root(self) -> Path:
        """A path that names this workspace; there is no such directory."""
        return self._root

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        return self._layer.base

    @property
    def files(self) -> Files:
        """The files as they are now; change them to write.

        Raises:
            CutOff: a newer epoch has the workspace.
        """
        if self.cut_off:
            raise CutOff(5, f"{self._root} was cut off by a newer epoch")
        return self._layer.files

    def begin_turn(self, turn: int) -> None:
        """Attribute changes from now on to a turn."""
        self._turn = turn

    def seal(self) -> TreeRef:
        """Seal the files to a tree."""
        files = self.files
        sealed = self._forest.files(self._layer.sealed)
        if files != sealed:
            self._note(sealed)
            base = self._forest.files(self._layer.base)
            self._layer.sealed = self._layer.base if files == base else self._forest.keep(files)
            if self._layer.sealed != self._layer.base:
                self._forest.bases[self._layer.sealed.oplog_id] = self._layer.base.tree_id
        return self._layer.sealed

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base."""
        if ref not in (self._layer.sealed, self._layer.base):
            raise InvalidInput(f"tree {ref.tree_id} is not the one sealed last")
        self._layer.base = ref

    def rollback(self) -> None:
        """Discard all changes since the base."""
        base = self._forest.files(self.base)
        self.files.clear()
        self.files.update(base)
        self._layer.sealed = self._layer.base

    def move_to(self, ref: TreeRef) -> None:
        """Replace the files by those of a sealed tree.

        Raises:
            NotFound: it was never sealed.
            Conflict: it was sealed on top of another commit.
        """
        files = self._forest.files(ref)
        if ref != self.base and self._forest.bases.get(ref.oplog_id, self.base.tree_id) != self.base.tree_id:
            raise Conflict(f"tree {ref.tree_id} was sealed on top of another one")
        self.files.clear()
        self.files.update(files)
        self._layer.sealed = ref

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations since the workspace was opened."""
        if path not in self._history:
            raise NotFound(f"{path!r} never existed")
        return [iteration for iteration, _ in self._history[path]]

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration."""
        for known, content in self._history.get(path, ()):
            if known.iteration == iteration and known.hash:
                return io.BytesIO(content.encode())
        raise NotFound(f"{path!r} has no content at iteration {iteration}")

    def close(self) -> None:
        """Close; the layer stays on the node."""

    def _note(self, before: Mapping[str, str]) -> None:
        for path in sorted(before.keys() | self._layer.files.keys()):
            content = self._layer.files.get(path)
            if content == before.get(path):
                continue
            known = self._history.setdefault(path, [])
            data = (content or "").encode()
            number, name = len(known) + 1, "" if content is None else blob_id(data)
            op = "delete" if content is None else "write"
            known.append((Iteration(number, 0, len(data), name, op, self._turn), content or ""))
