"""Tracked containers and the shapes of their members: they record changes, and drain them as a patch.

Begin with `node`, the bookkeeping of every container, and `shape_compiler`, which finds the shapes of a class. This
room has more files than others because it has one a kind of container and of shape, which know each other.
"""
