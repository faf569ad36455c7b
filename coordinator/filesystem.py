"""The fsspec file system ``chronicle://``: workspaces of agents, and those of stores without agents.

::

    chronicle://notes/alice@12/data.csv     the agent notes/alice after its turn 12
    chronicle://notes/alice/data.csv        after its last turn
    chronicle://acme:notes/alice/data.csv   of the tenant acme
    chronicle://@12/data.csv                with store=: a workspace's commit, see `chronicle.filesystem`

The home is given by ``home=`` or ``$PODIUM_HOME``, by default ``.podium``. Reads take no lease, work whether or not the
agent runs, and always see a committed turn.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.errors import NotFound
from chronicle.filesystem import ChronicleFileSystem
from coordinator.environment import home_directory
from coordinator.home import Home
from podium.address import Address, label
from podium.agent_record import find_session, list_agents, read_agent
from podium.errors import InvalidAddress, UnknownAgent, UnknownMoment

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.port import TreeRef

__all__ = ["AgentFileSystem", "AgentMoments"]


class AgentMoments:
    """The turns of a home's agents: ``TYPE/KEY@TURN``, and ``TYPE/KEY`` for the last one.

    A key may itself end in ``@`` and a number: an agent with the whole name takes precedence.

    Args:
        home: the home's directory.

    Raises:
        HomeError: it is not a home.
        HomeTooNew: a newer version wrote it.
    """

    depth = 2

    def __init__(self, home: Path) -> None:
        self._home = Home(home).open()
        self._blobs = self._home.blobs()

    @property
    def reader(self) -> BlobReader:
        """The home's blobs."""
        return self._blobs

    def resolve(self, name: str) -> TreeRef | None:
        """Return an agent's files at a turn."""
        with closing(self._journal()) as journal:
            address, turn = name, None
            before, at, number = name.rpartition("@")
            if at and number.isdecimal() and not self._is_agent(journal, name):
                address, turn = before, int(number)
            try:
                return read_agent(journal, self._blobs, Address.parse(address), turn).tree
            except (InvalidAddress, UnknownAgent, UnknownMoment) as error:
                raise NotFound(str(error)) from error

    def names(self, prefix: str) -> list[str]:
        """Return the types of agents, or the keys of one type."""
        with closing(self._journal()) as journal:
            agents = [label(session).partition("/") for session in list_agents(journal)]
        if prefix:
            return sorted(key for kind, _, key in agents if kind == prefix)
        return sorted({kind for kind, _, _ in agents})

    def is_fixed(self, name: str) -> bool:
        """Whether a name has a turn number. Such a name is immutable: a rewind does not change its meaning."""
        with closing(self._journal()) as journal:
            return name.rpartition("@")[2].isdecimal() and "@" in name and not self._is_agent(journal, name)

    def _journal(self) -> JournalStore:
        return self._home.journal(create=False, read_only=True)

    def _is_agent(self, journal: JournalStore, name: str) -> bool:
        try:
            find_session(journal, Address.parse(name))
        except (InvalidAddress, UnknownAgent):
            return False
        return True


class AgentFileSystem(ChronicleFileSystem):
    """`chronicle.filesystem.ChronicleFileSystem` with the workspaces of agents.

    Args:
        home: home directory of the agents; ignored if a store or a workspace is given.
        options: those of `ChronicleFileSystem`.
    """

    def __init__(self, *args: Any, home: str | os.PathLike[str] | None = None, **options: Any) -> None:
        if not args and not any(options.get(name) is not None for name in ("workspace", "store", "fo", "moments")):
            options["moments"] = AgentMoments(Path(home) if home else home_directory())
        super().__init__(*args, **options)
