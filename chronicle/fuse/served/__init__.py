"""What a mount shows: the operations of a workspace's file system, and the magic files under ``.chronicle``.

It knows neither how requests come from the kernel nor of processes.
"""
