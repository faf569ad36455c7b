"""Processes of other users, which root can start: their ids need not be those of users that exist."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["INTERPRETER", "as_user"]

INTERPRETER: Final = """
set -e
interpreter=$1; shift
case $interpreter in /root/*)  # whom nobody else may enter
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/kept
    mount --bind "$interpreter" /mnt/kept
    mount -t tmpfs -o mode=755 tmpfs /root
    mkdir -p "$interpreter"
    mount --move /mnt/kept "$interpreter"
    umount /mnt
esac
"""
"""Has all users reach Python, the first argument, in bash and in namespaces of mounts of its own."""
_BECOME: Final = 'user=$1 group=$2; shift 2; exec setpriv --reuid="$user" --regid="$group" --clear-groups "$@"'


def as_user(user: int, group: int) -> list[str]:
    """Return the beginning of a command that is run by a user, who has no privileges and one group."""
    script = f"mount --make-rprivate /\n{INTERPRETER}{_BECOME}"
    return ["unshare", "--mount", "bash", "-c", script, "as-user", sys.base_prefix, str(user), str(group)]
