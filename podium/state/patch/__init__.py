"""RFC 6902 patches of plain documents: apply, diff, and follow a state by its patches. Containers are unknown here."""
