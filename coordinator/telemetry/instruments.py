"""All metrics of a home, and the values that are read when somebody asks for them."""

from __future__ import annotations

from typing import Final

from podium.turn.telemetry import SHORT_S, TURN_INSTRUMENTS, Instrument

__all__ = [
    "AGENTS_ASLEEP",
    "AGENTS_AWAKE",
    "AGENTS_OF_NODES",
    "CATALOGUE",
    "HOSTS",
    "HOSTS_OF_NODES",
    "INBOX_LAG",
    "INBOX_MESSAGES",
    "INSTRUMENTS",
    "MESSAGES_ADMITTED",
    "MODEL_CALLS",
    "MODEL_CALLS_RUNNING",
    "MODEL_COST",
    "MODEL_DURATION",
    "MODEL_TOKENS",
    "MODEL_TTFT",
    "OUTBOX_LAG",
    "OUTBOX_MESSAGES",
    "PARKED_MESSAGES",
    "REMINDERS_FIRED",
    "SERIES_DROPPED",
    "SERVICE_UP",
    "WAKES",
    "WAKES_WAITING",
    "WAKE_DURATION",
]

_OF_AGENT: Final = ("agent_type", "tenant")

WAKES: Final = Instrument(
    "podium_wakes_total",
    "counter",
    "Requests to wake an agent that ended, by outcome: `woken` or `failed`.",
    (*_OF_AGENT, "outcome"),
)
WAKE_DURATION: Final = Instrument(
    "podium_wake_duration_seconds",
    "histogram",
    "Time from the request to wake an agent until it is awake: waiting for a host, lease, workspace and state.",
    _OF_AGENT,
    (*SHORT_S, 30.0, 60.0),
)
MESSAGES_ADMITTED: Final = Instrument(
    "podium_messages_admitted_total", "counter", "Messages of clients that were admitted into inboxes.", _OF_AGENT
)
REMINDERS_FIRED: Final = Instrument(
    "podium_reminders_fired_total", "counter", "Reminders that fired: their messages are in the inboxes.", _OF_AGENT
)
SERIES_DROPPED: Final = Instrument(
    "podium_metrics_dropped_total",
    "counter",
    "Measurements that were dropped because a process had too many series.",
)
SERVICE_UP: Final = Instrument(
    "podium_service_up",
    "gauge",
    "Whether the service of the home answers: 1, or 0, with most of the others missing.",
)
AGENTS_AWAKE: Final = Instrument("podium_agents_awake", "gauge", "Agents that are awake.", _OF_AGENT)
AGENTS_ASLEEP: Final = Instrument("podium_agents_asleep", "gauge", "Agents that sleep: they take no process.")
HOSTS: Final = Instrument(
    "podium_hosts",
    "gauge",
    "Processes for agents, by status: `starting`, `warm` (ready, without an agent), `assigned`, `draining` (to "
    "end, without an agent), `lost` (ended by itself), `ending`.",
    ("status",),
)
AGENTS_OF_NODES: Final = Instrument("podium_node_agents", "gauge", "Agents on the hosts of each node.", ("node",))
HOSTS_OF_NODES: Final = Instrument(
    "podium_node_hosts",
    "gauge",
    "Processes for agents on each node, by status as of `podium_hosts`.",
    ("node", "status"),
)
WAKES_WAITING: Final = Instrument("podium_wakes_waiting", "gauge", "Agents that are to wake and are not awake yet.")
INBOX_MESSAGES: Final = Instrument(
    "podium_inbox_messages", "gauge", "Messages that wait in the inboxes, those that are being handled included."
)
INBOX_LAG: Final = Instrument("podium_inbox_lag_seconds", "gauge", "Age of the oldest message that waits in an inbox.")
PARKED_MESSAGES: Final = Instrument(
    "podium_parked_messages", "gauge", "Messages that are parked after their last failed attempt."
)
OUTBOX_MESSAGES: Final = Instrument(
    "podium_outbox_messages", "gauge", "Messages between agents that were committed and are not delivered yet."
)
OUTBOX_LAG: Final = Instrument("podium_outbox_lag_seconds", "gauge", "Age of the oldest of these messages.")

_OF_CALL: Final = ("profile", "tenant")
_CALL_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
MODEL_CALLS: Final = Instrument(
    "podium_model_calls_total",
    "counter",
    "Calls of models that ended, by status (`completed`, `failed`, `cancelled`) and the kind of the error, if any.",
    (*_OF_CALL, "status", "error"),
)
MODEL_TOKENS: Final = Instrument(
    "podium_model_tokens_total",
    "counter",
    "Tokens that providers reported, by kind: `input` (with those from a cache), `output`, `cached`.",
    (*_OF_CALL, "kind"),
)
MODEL_COST: Final = Instrument(
    "podium_model_cost_total", "counter", "Cost of calls, in the unit of the profiles' prices.", _OF_CALL
)
MODEL_TTFT: Final = Instrument(
    "podium_model_ttft_seconds",
    "histogram",
    "Time from the beginning of a call, waiting included, until its first token.",
    ("profile",),
    _CALL_S,
)
MODEL_DURATION: Final = Instrument(
    "podium_model_duration_seconds", "histogram", "Time of a completed call.", ("profile",), _CALL_S
)
MODEL_CALLS_RUNNING: Final = Instrument("podium_model_calls_running", "gauge", "Calls of models that run or wait.")

INSTRUMENTS: Final = (
    *TURN_INSTRUMENTS,
    WAKES,
    WAKE_DURATION,
    MESSAGES_ADMITTED,
    REMINDERS_FIRED,
    AGENTS_AWAKE,
    AGENTS_ASLEEP,
    HOSTS,
    AGENTS_OF_NODES,
    HOSTS_OF_NODES,
    WAKES_WAITING,
    INBOX_MESSAGES,
    INBOX_LAG,
    PARKED_MESSAGES,
    OUTBOX_MESSAGES,
    OUTBOX_LAG,
    MODEL_CALLS,
    MODEL_TOKENS,
    MODEL_COST,
    MODEL_TTFT,
    MODEL_DURATION,
    MODEL_CALLS_RUNNING,
    SERVICE_UP,
    SERIES_DROPPED,
)
"""Every metric, in the order in which documents list them."""
CATALOGUE: Final = {instrument.name: instrument for instrument in INSTRUMENTS}
"""The same by name."""
