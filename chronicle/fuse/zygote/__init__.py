"""The zygote of a node: a warm process from which mount servers are forked, and which watches and ends them.

`launcher` starts and finds it. `supervisor` executes commands, `mount_manager` is the life cycle of each mount with its
`mount_record`, `processes` watches the servers, `forking` forks them: by `prefork`, or ahead as a `spare_server`.
`main` is the process, and `warmup` what it does before the first fork.
"""
