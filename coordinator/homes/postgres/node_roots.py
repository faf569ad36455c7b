"""`PostgresNodeRoots`: a document for each directory of a home, with the trees that its layers refer to."""

from __future__ import annotations

import hashlib
import json
import socket
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt
from chronicle.ids import BlobId
from chronicle.journal.postgres.database import NOW_MS
from chronicle.workspace.port import TreeRef
from coordinator.homes.node_roots import FORGOTTEN_S

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from chronicle.journal.postgres.database import PostgresDatabase

__all__ = ["PostgresNodeRoots"]

_PREFIX: Final = "roots "
_WRITE: Final = """
INSERT INTO document VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET data = excluded.data, written = excluded.written
"""
_OTHERS: Final = "FROM document WHERE starts_with(name, ?) AND name <> ? AND written"


class PostgresNodeRoots:
    """`coordinator.homes.node_roots.NodeRoots` in PostgreSQL, whose clock dates the documents.

    Args:
        schema: the schema of the home's records.
        directory: the home's directory on this machine.
    """

    def __init__(self, schema: PostgresDatabase, directory: Path) -> None:
        self._schema = schema
        self._place = f"{socket.gethostname()}:{directory}"
        digest = hashlib.sha256(self._place.encode(errors="surrogateescape")).hexdigest()
        self._name = f"{_PREFIX}{digest[:32]}"

    def publish(self, refs: Collection[TreeRef], damage: str = "") -> None:
        """See `NodeRoots`; forgets directories that have published nothing for long."""
        told = sorted({(ref.tree_id, ref.oplog_id) for ref in refs})
        data = json.dumps({"place": self._place, "roots": told, "damage": damage}).encode(errors="surrogateescape")
        with self._schema.writing() as db:
            (now_ms,) = db.execute(NOW_MS).fetchone()
            db.execute(_WRITE, (self._name, data, now_ms))
            db.execute(f"DELETE {_OTHERS} <= ?", (_PREFIX, self._name, now_ms - round(FORGOTTEN_S * 1000)))

    def of_others(self) -> list[TreeRef]:
        """See `NodeRoots`."""
        with self._schema.reading() as db:
            rows = db.execute(f"SELECT data {_OTHERS} > 0", (_PREFIX, self._name)).fetchall()
        published = [json.loads(data) for (data,) in rows]
        for each in published:
            if each["damage"]:
                raise Corrupt(
                    f"what the layers of {each['place']} refer to is not known, so nothing is freed: {each['damage']}. "
                    "Mend or remove it there; that is looked at every 20 minutes, and when podium node starts"
                )
        return [TreeRef(BlobId(tree), BlobId(oplog)) for each in published for tree, oplog in each["roots"]]
