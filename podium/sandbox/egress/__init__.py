"""The way out of a sandbox whose network is a list of hosts: a proxy of this process, for one command.

It knows hosts, heads of HTTP and the first message of TLS; no command, no policy.
"""
