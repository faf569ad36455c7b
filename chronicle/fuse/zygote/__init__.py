"""The zygote of a node: a warm process that forks mount servers, watches them and ends them. `zygote` is the entry.

`supervisor` takes orders, `lifecycle` is the life of each mount, `prefork` the process that only forks, `warmup` what
it does before the first fork.
"""
