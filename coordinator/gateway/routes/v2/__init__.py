"""Routes of ``/v2``: what clients do with sessions, artifacts and bundles of their own. Begin with `sessions`."""
