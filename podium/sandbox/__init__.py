"""A sandbox for commands: one policy, on the strongest means that the machine has.

Begin with `run` of `podium.sandbox.running`. It knows no turn, no agent and no workspace: paths, a command, its output.
"""
