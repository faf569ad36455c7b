"""Promises of every `chronicle.workspace.port.Workspace`, as tests. Subclass it for a presentation::

    class TestMine(WorkspaceContract):
        @pytest.fixture
        def node(self, tmp_path):
            ...yield a WorkspaceNode...

Files are made and read with plain system calls below `Workspace.root`, the trees are checked by reading them from the
blob store. Needs pytest.
"""

from __future__ import annotations

from chronicle.testing.workspace_contract.closes import CloseContract
from chronicle.testing.workspace_contract.contract import WorkspaceNode
from chronicle.testing.workspace_contract.files import Model, files_below, files_in
from chronicle.testing.workspace_contract.history import HistoryContract
from chronicle.testing.workspace_contract.moves import MoveContract, OpenFileMoveContract
from chronicle.testing.workspace_contract.opening import OpeningContract
from chronicle.testing.workspace_contract.trees import TreeContract
from chronicle.testing.workspace_contract.turns import TurnContract

__all__ = ["Model", "VersionPerCloseContract", "WorkspaceContract", "WorkspaceNode", "files_below", "files_in"]


class WorkspaceContract(TreeContract, TurnContract, MoveContract, HistoryContract, OpeningContract):
    """Promises of every presentation.

    For those that make a version each time a file is closed there is more, in `VersionPerCloseContract`.
    """


class VersionPerCloseContract(WorkspaceContract, CloseContract, OpenFileMoveContract):
    """Further promises of presentations that see each operation."""
