"""Immutable bytes named by their BLAKE3. `store` is the port; `memory` and `fsspec_store` are its adapters."""

from __future__ import annotations

from chronicle.blobs.ident import blob_id

__all__ = ["blob_id"]
