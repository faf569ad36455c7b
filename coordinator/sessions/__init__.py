"""Sessions of clients: transcripts that programs keep themselves, with branches, artifacts and pinned bundles.

Begin with `coordinator.sessions.home_sessions`: `HomeSessions` offers all operations, async, for the gateway. The other
modules are synchronous functions over a journal and blobs; `reading` gives what a context is built from. Nothing here
knows HTTP, models or Ray.
"""
