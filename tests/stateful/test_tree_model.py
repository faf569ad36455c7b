"""Trees against a dict of paths, with batches of changes as a workspace makes them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import BlobId
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

names = st.one_of(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 400).map(lambda number: b"name-%03d" % number))
modes = st.sampled_from([0o644, 0o600, 0o4755])


class TreeModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryBlobStore()
        self.buffer = BlobBuffer(self.store)
        self.model: dict[bytes, Entry] = {}
        self.root = EMPTY
        self.changes: dict[bytes, Entry | None] = {}
        self.past: list[tuple[BlobId, dict[bytes, Entry]]] = []

    @initialize(count=st.sampled_from([0, 300]))
    def fill(self, count: int) -> None:
        """Directories of more than one node."""
        self.put(b"", b"a", Entry(Kind.DIR, 0o755))
        for number in range(count):
            self.put(b"a", b"name-%03d" % number, self.file(b"%d" % number, 0o644))
        self.commit()

    def file(self, data: bytes, mode: int) -> Entry:
        return Entry(Kind.FILE, mode, content=store_bytes(self.buffer, data))

    def directories(self) -> list[bytes]:
        return [b"", *(path for path, entry in self.model.items() if entry.kind is Kind.DIR)]

    def below(self, path: bytes) -> list[bytes]:
        return [other for other in self.model if other.startswith(path + b"/")]

    def drop(self, path: bytes) -> None:
        for other in [path, *self.below(path)]:
            self.model.pop(other, None)
            self.changes.pop(other, None)
        self.changes = {other: entry for other, entry in self.changes.items() if not other.startswith(path + b"/")}

    def put(self, directory: bytes, name: bytes, entry: Entry) -> None:
        path = directory + b"/" + name if directory else name
        self.drop(path)
        self.model[path] = entry
        self.changes[path] = replace(entry, subtree=EMPTY) if entry.kind is Kind.DIR else entry

    @rule(data=st.data(), name=names, content=st.binary(max_size=4), mode=modes)
    def write(self, data: st.DataObject, name: bytes, content: bytes, mode: int) -> None:
        self.put(data.draw(st.sampled_from(self.directories())), name, self.file(content, mode))

    @rule(data=st.data(), name=names)
    def mkdir(self, data: st.DataObject, name: bytes) -> None:
        self.put(data.draw(st.sampled_from(self.directories())), name, Entry(Kind.DIR, 0o755))

    @rule(data=st.data(), mode=modes)
    def chmod_directory(self, data: st.DataObject, mode: int) -> None:
        path = data.draw(st.sampled_from(self.directories()))
        if path:
            self.model[path] = replace(self.model[path], mode=mode)
            changed = self.changes.get(path)
            self.changes[path] = replace(changed, mode=mode) if changed is not None else self.model[path]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            path = data.draw(st.sampled_from(sorted(self.model)))
            self.drop(path)
            self.changes[path] = None

    @rule(data=st.data(), name=names)
    def move_directory(self, data: st.DataObject, name: bytes) -> None:
        """As a rename does it: the subtree of the last commit goes to another name."""
        self.commit()
        movable = self.directories()[1:]
        if not movable:
            return
        old = data.draw(st.sampled_from(movable))
        parents = [path for path in self.directories() if not (path + b"/").startswith(old + b"/")]
        parent = data.draw(st.sampled_from(parents))
        new = parent + b"/" + name if parent else name
        if (old + b"/").startswith(new + b"/"):
            return
        entry = tree.entry_at(self.buffer, self.root, old)
        assert entry is not None
        moved = {new + path[len(old) :]: self.model[path] for path in [old, *self.below(old)]}
        self.drop(new)
        self.drop(old)
        self.model.update(moved)
        self.changes[old] = None
        self.changes[new] = entry

    @rule()
    def commit(self) -> None:
        before = self.root
        old = dict(self.past[-1][1]) if self.past else {}
        self.root = tree.update_tree(self.buffer, self.root, self.changes)
        self.changes = {}
        self.buffer.flush()
        assert dict(without_subtrees(self.buffer, self.root)) == self.model
        differing = {
            path: (was and replace(was, subtree=None), now and replace(now, subtree=None))
            for path, was, now in tree.diff_trees(self.store, before, self.root)
        }
        assert differing == {
            path: (old.get(path), self.model.get(path))
            for path in {*old, *self.model}
            if old.get(path) != self.model.get(path)
        }
        self.past.append((self.root, dict(self.model)))

    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        if self.past:
            self.root, model = data.draw(st.sampled_from(self.past))
            self.model = dict(model)
            self.changes = {}
            self.past.append((self.root, model))

    @invariant()
    def paths_are_found(self) -> None:
        if self.past and not self.changes:
            for path in list(self.model)[:5]:
                found = tree.entry_at(self.store, self.root, path)
                assert found is not None
                assert replace(found, subtree=None) == self.model[path]

    def teardown(self) -> None:
        self.commit()
        whole = {
            path: replace(entry, subtree=EMPTY) if entry.kind is Kind.DIR else entry
            for path, entry in self.model.items()
        }
        assert tree.update_tree(BlobBuffer(self.store), EMPTY, whole) == self.root


def without_subtrees(buffer: BlobBuffer, root: BlobId) -> list[tuple[bytes, Entry]]:
    return [(path, replace(entry, subtree=None)) for path, entry in tree.walk(buffer, root)]


TestTreeModel = TreeModel.TestCase
TestTreeModel.settings = settings(stateful_step_count=25, max_examples=60)
