"""The file system that a mount shows: the operations on a workspace, and its history under ``.chronicle``.

It knows nothing of transports or processes.
"""
