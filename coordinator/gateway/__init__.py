"""The HTTP interface of a home, a FastAPI application: begin with `coordinator.gateway.app` (`create_app`).

It imports neither Ray nor agents' code: `coordinator.operations` does the work, and talks to the home's service.
"""
