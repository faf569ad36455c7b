"""Running turns: activations, the loop of messages, hook calls, and the commit that ends a turn.

`activation` is the entry. docs/internals/turn.md describes the order of writes.
"""
