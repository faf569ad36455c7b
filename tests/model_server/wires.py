"""An answer in each of the three formats, as frames of a stream or as one JSON document. Pure."""

from __future__ import annotations

import json
from typing import Any

from tests.model_server.answers import Answer, Wire, halves, pieces_of


def frames(wire: Wire, answer: Answer, newline: str = "\n") -> list[bytes]:
    """The events of a stream, each with the empty line that ends it."""
    events = {"chat": _chat_events, "responses": _responses_events, "messages": _messages_events}[wire](answer)
    written = [_frame(wire, event, newline) for event in events]
    return [*written, f"data: [DONE]{newline}{newline}".encode()] if wire == "chat" else written


def document(wire: Wire, answer: Answer) -> dict[str, Any]:
    """The answer to a request that wants no stream."""
    return {"chat": _chat_document, "responses": _response, "messages": _message}[wire](answer)


def error_document(wire: Wire, code: str, message: str) -> dict[str, Any]:
    """An error, as the body of a refusal."""
    if wire == "messages":
        return {"type": "error", "error": {"type": code, "message": message}, "request_id": "req_1"}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def error_frame(wire: Wire, code: str, message: str) -> bytes:
    """An error within a stream."""
    if wire == "responses":
        return _frame(wire, {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 9})
    return _frame(wire, error_document(wire, code, message))


def _frame(wire: Wire, event: dict[str, Any], newline: str = "\n") -> bytes:
    name = f"event: {event['type']}{newline}" if wire != "chat" else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}{newline}{newline}".encode()


# -- chat completions --------------------------------------------------------------------------------------------------


def _chat_events(answer: Answer) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces_of(answer.reasoning)]
    deltas += [{"content": piece} for piece in answer.words]
    for index, call in enumerate(answer.calls):
        start = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [start | answer.extra.get("tool_calls", {}).get(call.id, {})]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in halves(call.arguments_json)
        ]
    choices: list[list[dict[str, Any]]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices += [[{"index": 0, "delta": {}, "finish_reason": _chat_finish(answer)}], []]
    events = [_chat_head(answer, "chat.completion.chunk") | {"choices": each, "usage": None} for each in choices]
    events[-1]["usage"] = _chat_usage(answer)
    return events


def _chat_document(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _chat_finish(answer), "logprobs": None}
    return _chat_head(answer, "chat.completion") | {"choices": [choice], "usage": _chat_usage(answer)}


def _chat_head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": 1_790_000_000, "model": answer.model}


def _chat_finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _chat_usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": answer.cached_tokens,
            "cache_write_tokens": answer.cache_write_tokens,
        },
    }


# -- Responses ---------------------------------------------------------------------------------------------------------


def _responses_events(answer: Answer) -> list[dict[str, Any]]:
    begun = _response(answer) | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for place, item in enumerate(_items(answer)):
        events += _item_events(place, item)
    done = _response(answer)
    events.append({"type": f"response.{done['status']}", "response": done})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at: dict[str, Any] = {"output_index": place}
    inside = at | {"item_id": item["id"]}
    begun = dict(item)
    events: list[dict[str, Any]] = []
    if item["type"] == "message":
        begun |= {"status": "in_progress", "content": []}
        (part,) = item["content"]
        inside |= {"content_index": 0}
        events.append(inside | {"type": "response.content_part.added", "part": part | {"text": ""}})
        events += [
            inside | {"type": "response.output_text.delta", "delta": piece, "logprobs": []}
            for piece in pieces_of(part["text"])
        ]
        events.append(inside | {"type": "response.output_text.done", "text": part["text"], "logprobs": []})
        events.append(inside | {"type": "response.content_part.done", "part": part})
    elif item["type"] == "reasoning":
        begun |= {"summary": [], "encrypted_content": ""}
        for number, part in enumerate(item["summary"]):
            of_part = inside | {"summary_index": number}
            kind = "response.reasoning_summary"
            events.append(of_part | {"type": f"{kind}_part.added", "part": part | {"text": ""}})
            events += [of_part | {"type": f"{kind}_text.delta", "delta": piece} for piece in pieces_of(part["text"])]
            events.append(of_part | {"type": f"{kind}_text.done", "text": part["text"]})
            events.append(of_part | {"type": f"{kind}_part.done", "part": part})
    elif item["type"] == "function_call":
        begun |= {"status": "in_progress", "arguments": ""}
        kind = "response.function_call_arguments"
        events += [inside | {"type": f"{kind}.delta", "delta": piece} for piece in halves(item["arguments"])]
        events.append(inside | {"type": f"{kind}.done", "arguments": item["arguments"], "name": item["name"]})
    first = at | {"type": "response.output_item.added", "item": begun}
    return [first, *events, at | {"type": "response.output_item.done", "item": item}]


def _items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        items.append(
            {
                "id": f"rs_{answer.id}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": answer.signature,
            }
        )
    items += answer.extra.get("items", [])
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{answer.id}", "type": "message", "status": "completed", "role": "assistant"}
        items.append(message | {"content": [part]} | answer.extra.get("message", {}))
    items += [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments_json,
        }
        | answer.extra.get("tool_calls", {}).get(call.id, {})
        for call in answer.calls
    ]
    return items


def _response(answer: Answer) -> dict[str, Any]:
    incomplete = answer.finish not in {"", "completed"}
    diagnosis = answer.cache_miss_reason and {
        "type": "cache_miss",
        "reason": answer.cache_miss_reason,
        "cache_missed_tokens": 7,
    }
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": {"reason": answer.finish} if incomplete else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _items(answer),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "prompt_cache_diagnostics": diagnosis,
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {
                "cached_tokens": answer.cached_tokens,
                "cache_write_tokens": answer.cache_write_tokens,
            },
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


# -- Anthropic Messages ------------------------------------------------------------------------------------------------


def _messages_events(answer: Answer) -> list[dict[str, Any]]:
    whole = _message(answer)
    usage = whole["usage"]
    begun = whole | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(whole["content"]):
        events += [each | {"index": index} for each in _block_events(block)]
        if index == 0:
            events.append({"type": "ping"})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    totals = {"output_tokens": answer.output_tokens}
    return [*events, {"type": "message_delta", "delta": delta, "usage": totals}, {"type": "message_stop"}]


def _block_events(block: dict[str, Any]) -> list[dict[str, Any]]:
    begun = dict(block)
    deltas: list[dict[str, Any]] = []
    if block["type"] == "text":
        begun["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces_of(block["text"])]
    elif block["type"] == "thinking":
        begun |= {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces_of(block["thinking"])]
        deltas += [{"type": "signature_delta", "signature": piece} for piece in halves(block["signature"])]
    elif block["type"] in {"tool_use", "server_tool_use"}:
        begun["input"] = {}
        written = block.pop("input_json", None) or json.dumps(block["input"])
        begun.pop("input_json", None)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *halves(written)]]
    return [
        {"type": "content_block_start", "content_block": begun},
        *({"type": "content_block_delta", "delta": delta} for delta in deltas),
        {"type": "content_block_stop"},
    ]


def _message(answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": answer.signature})
    content += answer.extra.get("blocks", [])
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        use = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}, "input_json": call.arguments_json}
        content.append(use | answer.extra.get("tool_calls", {}).get(call.id, {}))
    reason = answer.cache_miss_reason and {"type": answer.cache_miss_reason, "cache_missed_input_tokens": 7}
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": answer.finish or ("tool_use" if answer.calls else "end_turn"),
        "stop_sequence": None,
        "diagnostics": {"cache_miss_reason": reason} if reason else None,
        "usage": {
            "input_tokens": answer.input_tokens - answer.cached_tokens - answer.cache_write_tokens,
            "cache_read_input_tokens": answer.cached_tokens,
            "cache_creation_input_tokens": answer.cache_write_tokens,
            "output_tokens": answer.output_tokens,
        },
    }
