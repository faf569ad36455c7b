"""The commands of ``podium`` on a home behind a gateway: ``--url``. Begin with `connection`.

They show what the same commands show of a home on this machine, by the views of `coordinator.cli.views`.
"""
