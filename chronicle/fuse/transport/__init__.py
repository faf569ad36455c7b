"""The transports, which carry the kernel's requests to a served file system: the raw FUSE protocol, or pyfuse3.

`choice` picks one. A request that must wait is deferred (until a command has ended) or parked (until a blob is read).
"""
