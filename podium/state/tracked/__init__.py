"""Tracked containers and the shapes of their places: state that notes its own changes, and drains them as a patch."""
