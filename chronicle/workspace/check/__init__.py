"""Verification of a workspace: its trees, the content of its files and its histories."""
