"""The command line: it parses, calls a use case, renders the answer, and knows nothing else.

Data goes to stdout, talk goes to stderr, errors are one or two lines and an exit code (:mod:`coordinator.cli.exits`).
Nothing here imports Ray, and what is slow to import is imported by the command that needs it.
"""
