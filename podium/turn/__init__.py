"""Running turns: activations, the message loop, hooks under deadlines, and the commit that ends a turn.

`activation` is the entry point; `message_loop` drives it. docs/internals/turn.md describes the order of writes.
"""
