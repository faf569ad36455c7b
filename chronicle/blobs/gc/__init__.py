"""Garbage collection of packs. `collector` is the entry; docs/internals/gc.md describes the protocol and its races."""
