"""Versions of paths: their records, what follows from renamed directories, and the operation log of a commit."""
