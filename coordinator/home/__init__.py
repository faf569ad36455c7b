"""A home: the directory that holds all persistent data of one podium, or says where it is.

::

    format            the version of this layout
    id                identity of this home: 12 random letters and digits
    lock              lock file, locked by the service while it runs
    starting          lock file, locked by the client that starts the service
    node              lock file, locked by `podium node` while it runs
    journal.db        the journal (SQLite), with journal.db-sums and journal.db-heads, its checksums and heads at the
                      last close, and journal.db-reserve, space reserved for a full disk
    blobs/            the blob store
    nodes/<node>/     data of one node: layers/, used/ (records of layers in use), mounts/ (a symlink per host),
                      bundles/ (code of deploys)
    places/           lock files of the workspace paths on this machine
    models.json       the profiles of models, without keys; models.db: the records of their calls (SQLite)
    logs/             logs of the service and its hosts
    generation        what this node has seen of a database server that has the journal

The journal may be in PostgreSQL, then with the records beside it, and the blobs in an object store. Such a directory
holds what belongs to this machine, and the id of the home, which the database has, too.

Sockets live in a short directory under the system's temporary path (`Home.run_dir`), because a Unix socket's path
may not exceed 107 bytes. Workspaces appear at short paths too, which are derived from the id alone
(`coordinator.host.node.workspace_paths`).
"""

from __future__ import annotations

from coordinator.home.creation import Home
from coordinator.home.description import Identity

__all__ = ["Home", "Identity"]
