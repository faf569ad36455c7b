"""A versioned directory: `port` says what its presentations (fuse, dir, api) promise; the rooms build it from blobs."""
