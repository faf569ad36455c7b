"""The nodes of a cluster: what they have, which are drained, and what is asked of the autoscaler. Begin at `nodes`."""
