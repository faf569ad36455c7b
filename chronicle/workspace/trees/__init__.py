"""Trees of directories as blobs: Merkle maps (`nodes`), directories made of them, and the differences of two trees."""
