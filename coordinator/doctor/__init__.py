"""Checks of what a home needs around it: mounts, database, bucket, clocks, Ray, service, gateway, network.

Begin with `examination` (`examine`). Each check is a function of a `Subject` that returns a `Finding`. It changes
nothing that lasts, but for an object of the bucket that it removes, and a document of the home that says when it ran.
"""
