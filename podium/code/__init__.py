"""Agents' code as bundles in the blob store, so that a node needs no checkout. Begin with `manifest.py`."""
