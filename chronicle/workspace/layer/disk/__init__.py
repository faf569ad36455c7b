"""A layer on disk: the log of operations and its replay, data files, undo files, and giving their space back."""
