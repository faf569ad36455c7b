"""Checks of a request before it reaches a route: limits of connections, hosts, origins, rates and bodies.

Begin with `rules` (`Rules`); `http_protocol` applies them to connections, `middleware` and `body_limit` to requests.
"""
