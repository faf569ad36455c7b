"""A versioned directory: `port` says what its presentations promise, the other modules build it from blobs."""
