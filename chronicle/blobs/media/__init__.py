"""Media that packs lie on: named immutable objects on a local disk, or on whatever fsspec reaches."""
