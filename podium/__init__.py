"""Podium, the agent: its base class, context, state, turns and activation.

It knows Chronicle, not Ray, HTTP, FUSE or SQL. Import from its modules; this package itself exports nothing.
"""
