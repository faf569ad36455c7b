"""Where a client's home is: behind a gateway, or on this machine.

Begin with `port`, which is what a client needs of a home: `http_backend` and `local_backend` implement it, and
`choosing` takes the one that the arguments and the environment name.
"""
