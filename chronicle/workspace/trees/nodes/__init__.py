"""A persistent ordered map of bytes to bytes, made of blobs, whose root depends on its content alone.

Directories, chunk lists and operation logs are such maps. Items, sorted by key, are cut into *nodes*; nodes are listed
by their last keys in nodes of the level above, up to one *root*. Where a node ends is decided by its content only
(`Cutter`), never by the order of edits, so equal content has an equal root, however it was built. An edit rewrites the
nodes it touches and the path above them; rarely it shifts a boundary, and then also the nodes up to the next boundary
that both versions share. The empty map has no node: its root is ``None``.

The format of a node, in bytes, is in docs/internals/trees.md; it is part of every tree id and never changes without a
new version byte. The package does no I/O of its own and knows nothing of files.
"""

from __future__ import annotations

from chronicle.workspace.trees.nodes.boundaries import Cutter
from chronicle.workspace.trees.nodes.building import NodeBuffer, build
from chronicle.workspace.trees.nodes.editing import update
from chronicle.workspace.trees.nodes.node import Node, decode_node, encode_node
from chronicle.workspace.trees.nodes.reading import NodeCache, diff, items, lookup, lookup_many, walk

__all__ = [
    "Cutter",
    "Node",
    "NodeBuffer",
    "NodeCache",
    "build",
    "decode_node",
    "diff",
    "encode_node",
    "items",
    "lookup",
    "lookup_many",
    "update",
    "walk",
]
