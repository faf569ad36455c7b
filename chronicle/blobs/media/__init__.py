"""Media for packs: named immutable objects on a local disk, or on any file system of fsspec."""
