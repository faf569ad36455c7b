"""Primitives of the operating system: atomic files, permissions, fallocate, the heap, and texts of its errors.

It knows nothing of Chronicle's records.
"""
