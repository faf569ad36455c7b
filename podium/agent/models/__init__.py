"""The models a user's agent is made of; see `podium.agent.models.delta_state`."""

from __future__ import annotations
