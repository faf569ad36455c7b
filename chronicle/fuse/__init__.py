"""Workspaces as FUSE mounts. The only package that may import pyfuse3, and only where it serves mounts."""

from __future__ import annotations

from chronicle.fuse.mountpoints.availability import available

__all__ = ["available"]
