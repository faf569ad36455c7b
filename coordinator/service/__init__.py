"""The service of a home: one process that holds the Ray cluster and serves the home's clients over a Unix socket."""
