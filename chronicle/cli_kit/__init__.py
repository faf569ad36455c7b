"""Base of commands: from the arguments of a process to its output and its exit code.

`main` runs a command, `exits` maps errors to exit codes, `hints` maps them to the command line that mends them,
`errors` prints an error, `terminal` writes data to stdout and messages to stderr, `stdout` buffers it, `options` has
the options of a command itself, `confirmation`, `progress` and `transfer` are for a user who waits, `times` and
`changes` render values that several commands show.

Only commands import this room. It must not know what a command does.
"""
