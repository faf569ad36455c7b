"""Read access to a commit without opening its workspace: its files, and the versions of its paths."""
