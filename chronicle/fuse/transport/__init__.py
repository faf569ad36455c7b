"""How the kernel's requests reach a served file system: the raw FUSE protocol, or pyfuse3.

`choice` picks one. Requests that have to wait are deferred (a command runs) or parked (a blob is on its way).
"""
