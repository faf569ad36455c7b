"""Model classes for users' agents; see `podium.agent.models.delta_state`."""

from __future__ import annotations
