"""Going back to earlier commits of a workspace, among all that the layer's model does to it: the log goes on."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from chronicle.blobs.buffer import BlobBuffer
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.rewind import rewound
from chronicle.workspace.tree import diff_trees
from chronicle.workspace.verify import TreeChecker
from tests.stateful.test_layer_model import LayerModel, World


class RewindModel(LayerModel):
    """The layer's model without deaths and rollbacks, whose commits are kept to be gone back to."""

    kill = rollback = take_over = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.commits = [(self.base, World())]

    def commit(self) -> None:
        """Commit everything."""
        self.seal()
        self.adopt()
        self.commits.append((self.base, copy.deepcopy(self.committed)))

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        self.commit()
        self.look()
        then, world = data.draw(st.sampled_from(self.commits))
        self.abandon()
        self.open_files.clear()
        buffer = BlobBuffer(self.blobs)
        ref = rewound(buffer, self.base, then, self.turn, self.clock.now_ms())
        buffer.flush()
        assert ref.tree_id == then.tree_id
        TreeChecker(self.blobs).check(ref)
        self.world = World(copy.deepcopy(world).files, copy.deepcopy(self.committed.history))
        for path, _, now in diff_trees(self.blobs, self.base.tree_id, then.tree_id):
            file = self.world.files.get(path.decode())
            self.note(path.decode(), None if now is None else "dir" if file is None else file.content)
        self.base, self.committed = ref, copy.deepcopy(self.world)
        self.commits.append((self.base, copy.deepcopy(self.committed)))
        self.sealed = None
        self.turn += 1
        self.epoch += 1
        self.layer, recovered = open_layer(self.spec(self.base), self.blobs, self.clock)
        assert recovered is None
        self.layer.begin_turn(self.turn)
        self.look()
        assert not self.layer.changed


TestRewindModel = RewindModel.TestCase
TestRewindModel.settings = settings(max_examples=25, stateful_step_count=30)
