"""Going back to earlier commits of a workspace, among all that the layer's model does to it: the log goes on."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chronicle.blobs.buffer import BlobBuffer
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.history.rewind import rewound
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees.tree import diff_trees
from tests.stateful.test_layer_model import LayerModel
from tests.stateful.world import World


class RewindModel(LayerModel):
    """The layer's model, whose commits are kept to be gone back to."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = [(self.base, World())]
        self.given_up: list[TreeRef] = []
        """What was sealed on top of the base and rolled back: what the journal keeps of tries that failed."""

    @precondition(lambda self: self.sealed is not None)
    @rule()
    def adopt(self) -> None:
        before = self.base
        super().adopt()
        self.committed_since(before)

    @rule()
    def rollback(self) -> None:
        """Give up everything, as turns do: sealed first."""
        self.seal()
        assert self.sealed is not None
        self.given_up.append(self.sealed[0])
        super().rollback()

    @rule(told=st.booleans())
    def kill(self, told: bool) -> None:
        before = self.base
        super().kill(told)
        self.committed_since(before)

    @rule()
    def take_over(self) -> None:
        super().take_over()
        if self.recovered is not None:
            self.given_up.append(self.recovered)

    def committed_since(self, before: TreeRef) -> None:
        """Note a commit, if there is one."""
        if self.base != before:
            self.commits.append((self.base, self.committed.copy()))
            self.given_up.clear()

    @rule(data=st.data(), give_up=st.booleans())
    def rewind(self, data: st.DataObject, give_up: bool) -> None:
        if give_up:
            self.rollback()
        else:
            self.seal()
            self.adopt()
        self.look()
        then, world = data.draw(st.sampled_from(self.commits))
        self.abandon()
        buffer = BlobBuffer(self.blobs)
        ref = rewound(buffer, self.base, then, self.turn, self.clock.now_ms(), self.given_up)
        buffer.flush()
        assert ref.tree_id == then.tree_id
        TreeChecker(self.blobs).check(ref)
        self.world = World(world.copy().files, self.committed.copy().history)
        for path, _, now in diff_trees(self.blobs, self.base.tree_id, then.tree_id):
            file = self.world.files.get(path.decode())
            self.world.note(path.decode(), None if now is None else "dir" if file is None else file.content)
        before, self.base, self.committed = self.base, ref, self.world.copy()
        self.committed_since(before)
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
