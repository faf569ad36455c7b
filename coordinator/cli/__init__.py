"""The command ``podium``: it parses arguments, calls a use case and renders the answer.

`main` lists the subcommands; each is a file in `commands`. What concerns agents is written over the client of a
`target`, the home here or at a URL; what concerns the files of a home, over its `stores`. What both commands of the
project share is in `chronicle.cli_kit`. To add a subcommand: write ``commands/NAME.py``, add it to ``COMMANDS`` in
`main`, describe it in docs/cli.md. Nothing here imports Ray; a module that is slow to import is imported by the
subcommand that needs it.
"""
