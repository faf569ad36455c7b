"""A versioned directory: `port` says the contract of its presentations (fuse, dir, api); the rooms implement it."""
