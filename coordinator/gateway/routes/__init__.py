"""The routes, a router for each subject."""

from coordinator.gateway.rest_of_path import register

register()  # before the routes of this package are declared
