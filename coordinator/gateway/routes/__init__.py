"""The routes, a router for each subject."""
