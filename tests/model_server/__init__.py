"""A model server for tests: one local HTTP server that speaks chat completions, Responses and Anthropic Messages.

`answers` says what a model answers, `wires` writes it in each format (pure), `replies` how it goes wrong (splits, cuts,
stalls, half frames, refusals, pages), and `server` serves it, in a thread of its own.
"""
