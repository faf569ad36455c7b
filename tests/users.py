"""Processes of other users, which root can start: their ids need not be those of users that exist."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

__all__ = ["INTERPRETER", "as_user"]

ROOT: Final = Path(__file__).parents[1]

INTERPRETER: Final = f"""
set -e
interpreter=$1; shift
mount -t tmpfs tmpfs /mnt
private=()
for each in "$interpreter" {shlex.quote(str(ROOT))}; do
    top=; above=$each
    while above=$(dirname "$above"); [ "$above" != / ]; do
        [ $(( 0$(stat -c %a "$above") & 1 )) = 1 ] || top=$above
    done
    [ -z "$top" ] || private+=("$each" "$top")
done
for ((at = 0; at < ${{#private[@]}}; at += 2)); do
    mkdir "/mnt/$at"
    mount --bind "${{private[at]}}" "/mnt/$at"
done
for ((at = 1; at < ${{#private[@]}}; at += 2)); do
    mount -t tmpfs -o mode=755 tmpfs "${{private[at]}}"
    [ "${{private[3]}}" != "${{private[1]}}" ] || break
done
for ((at = 0; at < ${{#private[@]}}; at += 2)); do
    mkdir -p "${{private[at]}}"
    mount --move "/mnt/$at" "${{private[at]}}"
done
umount /mnt
"""
"""Has all users reach Python, the first argument, and this checkout, in bash and in namespaces of mounts of its own.

Directories above them that others may not enter are replaced by ones that they may.
"""
_BECOME: Final = 'user=$1 group=$2; shift 2; exec setpriv --reuid="$user" --regid="$group" --clear-groups "$@"'


def as_user(user: int, group: int) -> list[str]:
    """Return the beginning of a command that is run by a user, who has no privileges and one group."""
    script = f"mount --make-rprivate /\n{INTERPRETER}{_BECOME}"
    return ["unshare", "--mount", "bash", "-c", script, "as-user", sys.base_prefix, str(user), str(group)]
