"""The content of files as blobs: chunking, chunk lists, holes, and reading ahead."""
