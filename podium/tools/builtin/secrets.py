"""Paths that tools of files neither read nor write: what is outside of the workspace, and what holds secrets.

A path is looked at as it is given, and again after symbolic links are followed.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from podium.sandbox.protected import PROTECTED

if TYPE_CHECKING:
    from pathlib import Path, PurePath

__all__ = ["PathRefused", "allowed_path"]

_DIRECTORIES: Final = frozenset(
    {".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", "gcloud", ".password-store"}
)
_FILES: Final = (
    *(
        ".env",
        ".env.*",
        "*.env",
        "*.env.*",
        ".envrc",
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "*.jks",
        "*.keystore",
        "*.kdbx",
        "*.asc",
    ),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc"),
    *(".vault-token", "*.tfstate", "*.tfstate.*", ".s3cfg", ".boto", ".*_history", "client_secret*.json"),
    *(".git-credentials", ".htpasswd", "credentials", "credentials.*", "secrets.*", "service-account*.json"),
)
_PLACES: Final = ("/.git/config/", "/.config/gh/")
"""Files and directories by their place: the address of a remote may have a password."""
_EXAMPLE: Final = re.compile(r".*\.env\.(example|sample|template)")
_COPY: Final = re.compile(r"(~|\.bak|\.old|\.orig)+$")
"""What editors put behind the name of a file for its copy."""
_RUN_DIRECTORIES: Final = frozenset({".git", ".husky", ".vscode"})
_RUN_FILES: Final = frozenset(
    {
        *(".gitconfig", ".gitmodules", ".zlogin", ".zlogout", ".bash_aliases", ".vimrc", ".mise.toml", "mise.toml"),
        ".pre-commit-config.yaml",
    }
)
"""What others run, besides what sandboxes protect."""


class PathRefused(Exception):
    """A tool may not use a path."""


def allowed_path(root: Path, path: str, *, writes: bool) -> Path:
    """Return a path of the workspace, without symbolic links in it.

    Args:
        root: of the workspace.
        path: relative to it, or absolute.
        writes: whether it is to be written: then files that others run, such as hooks of git, are refused, too.

    Raises:
        PathRefused: it leads out of the workspace, or to a secret.
    """
    if not path or "\0" in path:
        raise PathRefused(f"{path!r} is no path")
    real_root = root.resolve()
    asked = real_root / path
    if asked.is_relative_to(root):  # absolute, by the name that the agent knows
        asked = real_root / asked.relative_to(root)
    real = asked.resolve()
    lexical = os.path.normpath(asked)
    for each in (type(real_root)(lexical), real):
        if not each.is_relative_to(real_root):
            raise PathRefused(f"{path} is outside of the workspace")
        _check(path, each.relative_to(real_root), writes=writes)
    return real


def _check(path: str, inside: PurePath, *, writes: bool) -> None:
    parts = [part.lower() for part in inside.parts]
    name = parts[-1] if parts else ""
    text = "/".join(parts)
    is_secret = (
        not _DIRECTORIES.isdisjoint(parts)
        or any(place in f"/{text}/" for place in _PLACES)
        or any(
            fnmatchcase(part, pattern) and _EXAMPLE.fullmatch(part) is None
            for part in (_COPY.sub("", part) for part in parts)
            for pattern in _FILES
        )
    )
    if is_secret:
        raise PathRefused(f"{path} may hold secrets, so tools neither read nor write it")
    if writes and (
        name in _RUN_FILES
        or not _RUN_DIRECTORIES.isdisjoint(parts)
        or any(f"/{text}/".find(f"/{each}/") >= 0 for each in PROTECTED)
    ):
        raise PathRefused(f"{path} is run by others, or configures what they run, so tools do not write it")
