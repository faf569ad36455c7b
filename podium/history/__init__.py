"""An agent's past: branches, folding, archives, deletion and erasure, and what of it keeps blobs alive."""
