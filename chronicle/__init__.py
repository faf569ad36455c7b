"""Chronicle, the durable record: a journal of events, a store of blobs, and versioned workspaces.

It knows nothing of agents, Ray or HTTP. Import from its modules; this package itself exports nothing.
"""
