"""The fleet: where agents run, on Ray, and the command line that talks to them.

Import from its modules; this package itself exports nothing.
"""
