"""The commands of ``podium``: one file each, named as the command (related ones share a file).

This room has more files than others because it has one a command.
"""
