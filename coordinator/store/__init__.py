"""The store process of a node: it has the credentials of a home's database and bucket, and commits for its hosts.

Hosts run users' code, so those of a home on a server open neither (docs/internals/processes.md). Begin with
`server`; `permits` says what a host may do.
"""
