"""Immutable bytes named by their BLAKE3. `port` is the interface of stores; `memory` and `packs` implement it."""

from __future__ import annotations

from chronicle.blobs.ident import blob_id

__all__ = ["blob_id"]
