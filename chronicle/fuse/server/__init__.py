"""Mount servers, one process each: one workspace's layer, its mount, and the commands of its client.

`request` is the order, `opening` makes the `engine` of it, `server` serves it; `client` is the host's side.
"""
