"""Mountpoints of this machine: the mounts on them, their users, and the guard of the directory below a mount.

`mountinfo` reads the state, `mounts` prepares mountpoints and unmounts, `claim` is the lock on one, `guard` closes the
directory below. `availability` says whether FUSE can be used at all.
"""
