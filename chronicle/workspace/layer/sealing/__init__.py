"""Sealing: the changes of a layer become blobs, in one put.

`seal` is the way in. It makes three passes, each of which uses what the one before it has put into the buffer: the
`contents` of new versions, the `tree` of changed directories with its hard links, and the `histories` of paths.
"""
