"""The deaths of hosts: who pays for one, and who is kept apart until that is known. Begin at `deaths`."""
