"""The process that serves a home over HTTP: its socket, its start and end, and those of a detached one.

Begin with `gateway` (`Gateway`).
"""
