"""Artifacts: named, immutable pieces of content that agents publish."""
