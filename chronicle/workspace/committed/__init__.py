"""Reading what was committed, without opening a workspace."""
