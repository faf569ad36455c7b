"""The code of agent types as the hosts have it: its files, and whether they have changed. Begin at `code_registry`."""
