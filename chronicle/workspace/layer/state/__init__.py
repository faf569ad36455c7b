"""A layer in memory: its nodes, names and pending versions, and how each logged operation changes them.

`apply` is the only code that changes this state for an operation; live operations and replay both call it.
"""
