"""The coordinator, the fleet: where agents run, and the ways to reach them.

It knows Chronicle and Podium, and owns Ray. Import from its modules; this package itself exports nothing.
"""
