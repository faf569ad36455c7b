"""Mount servers, one process each: one workspace's layer, its mount, and the commands of its client."""
