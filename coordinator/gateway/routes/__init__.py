"""The routes, a router for each subject; so this room has more files than others. Those of `/v2` are in `v2`."""

from coordinator.gateway.rest_of_path import register

register()  # before the routes of this package are declared
