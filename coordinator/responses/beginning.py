"""The response object as it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from coordinator.responses.body import QosBody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import JsonObject
    from coordinator.responses.body import ResponseBody
    from coordinator.responses.context import BranchContext
    from coordinator.responses.objects import ResponseObject
    from podium.models.quality import QualityOfService

__all__ = ["begun_response", "quality_of"]


def quality_of(body: ResponseBody) -> QualityOfService:
    """Return the quality of service that a request asks for."""
    return (body.qos or QosBody()).quality()


def begun_response(
    response_id: str,
    created_at: int,
    body: ResponseBody,
    tools: Sequence[JsonObject],
    context: BranchContext | None,
) -> ResponseObject:
    """Return a response as it begins."""
    head = context.head if context is not None else None
    quality = quality_of(body)
    shown: list[dict[str, Any]] = [
        {"description": None, "parameters": None, "strict": None, **cast("dict[str, Any]", tool)} for tool in tools
    ]
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "model": body.model,
        "output": [],
        "usage": None,
        "instructions": body.instructions,
        "tools": shown,
        "tool_choice": body.tool_choice or "auto",
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "prompt_cache_key": body.prompt_cache_key,
        "previous_response_id": None,
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "reasoning": None,
        "max_tool_calls": None,
        "store": True,
        "background": False,
        "service_tier": "default",
        "safety_identifier": None,
        "output_text": "",
        "session_id": head.session_id if head is not None else None,
        "branch_id": head.branch_id if head is not None else None,
        "head_event_id": head.event_id if head is not None else None,
        "version": head.version if head is not None else None,
        "qos": {
            "class": quality.qos_class,
            "priority": quality.priority,
            "target_ttft_ms": quality.target_ttft_ms,
            "deadline_ms": quality.deadline_ms,
            "degrade_policy": quality.degrade_policy,
        },
        "qos_outcome": None,
    }
