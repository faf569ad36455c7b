"""Wires of front ends that others make: podium's streams and transcripts in, their frames and messages out. Pure.

Begin with `coordinator.frontends.ai_sdk` (the UI message stream of the AI SDK) or `coordinator.frontends.ag_ui`
(AG-UI). The routes are in `coordinator.gateway.routes`, what they do to agents in
`coordinator.operations.conversations`.
"""
