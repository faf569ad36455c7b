"""Running turns: activations, the message loop, hooks under deadlines, and the commit that ends a turn.

`activation` is the entry point; `message_loop` drives it, and `runner` runs one turn: `hooks` calls the agent's code,
whose context is a `scope`, with its `steps`; `journal` makes the turn durable. docs/internals/turn.md describes the
order of writes.
"""
