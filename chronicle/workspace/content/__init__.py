"""The content of files as blobs: where it is cut into chunks, holes, and reading parts of it."""
