"""Tracked containers and the shapes of their members: they record changes, and drain them as a patch."""
