"""The writable layer of a workspace, the engine behind the fuse and api presentations.

`layer` is the facade, `opening` makes one; the other files here are its parts, which check and log operations. `state`
has what is in memory and the one code that applies operations; `disk` has the log, data files and undo files.
docs/internals/workspace.md describes the order of writes, and which part keeps it.
"""
