"""The writable layer of a workspace, the engine behind the fuse and api presentations. `layer` is the entry.

`state` is what a layer knows and how operations change it; `opening`, `seal` and `restore` are the steps of its life;
what it keeps on disk is in `disk`. docs/internals/workspace.md describes the order of writes.
"""
