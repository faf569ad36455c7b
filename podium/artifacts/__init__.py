"""Artifacts: named pieces of content that agents hand out."""
