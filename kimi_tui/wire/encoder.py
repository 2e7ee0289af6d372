"""Events as the `{"type", "payload"}` objects of `wire.jsonl`.

Where kimi-cli has a name for an event, its name and keys are used and what is ours stands beside them; the rest are our
own types, which it passes over.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from kimi_tui.wire import events as ev
from kimi_tui.wire.display_codec import encode_display
from kimi_tui.wire.events import Event, Record
from kimi_tui.wire.names import ANSWERS, STATUS_FIELDS

Json = dict[str, Any]


def encode(event: Event) -> Json:
    """The event as it is stored."""
    match event:
        case ev.TurnBegin(text, resumed, images):
            payload: Json = {"user_input": text}
            if resumed:
                payload["resumed"] = True
            if images:
                payload["images"] = images
            return _record("TurnBegin", payload)
        case ev.StepBegin(n):
            return _record("StepBegin", {"n": n})
        case ev.StepRetry():
            return _record(
                "StepRetry",
                {
                    "n": event.n,
                    "next_attempt": event.attempt,
                    "max_attempts": event.max_attempts,
                    "wait_s": event.wait_s,
                    "error_type": event.reason,
                    "status_code": event.status,
                },
            )
        case ev.TextPart(text):
            return _record("ContentPart", {"type": "text", "text": text})
        case ev.ThinkPart(text):
            return _record("ContentPart", {"type": "think", "think": text, "encrypted": None})
        case ev.ToolCall(key, name, arguments, call_id):
            return _record(
                "ToolCall",
                {
                    "type": "function",
                    "id": call_id or key,
                    "function": {"name": name, "arguments": arguments},
                    "extras": None,
                    "key": key,
                },
            )
        case ev.ToolCallPart(key, arguments):
            return _record("ToolCallPart", {"arguments_part": arguments, "key": key})
        case ev.ToolResult():
            return _record("ToolResult", _encode_result(event))
        case ev.StatusUpdate():
            return _record("StatusUpdate", _encode_status(event))
        case ev.ApprovalRequest():
            return _record("ApprovalRequest", _encode_approval(event))
        case ev.ApprovalResolved(request_id, answer, feedback):
            return _record(
                "ApprovalResponse",
                {"request_id": request_id, "response": ANSWERS[answer], "feedback": feedback},
            )
        case ev.SteerTaken(steer_id, text, withdrawn, number):
            payload = {"user_input": text, "id": steer_id, "number": number}
            return _record("SteerWithdrawn" if withdrawn else "SteerInput", payload)
        case _:
            return _record(type(event).__name__, _encode_fields(event))


def encode_record(record: Record) -> Json:
    """A whole line of `wire.jsonl`."""
    return {"timestamp": record.at, "seq": record.seq, "message": encode(record.event)}


def _record(name: str, payload: Json) -> Json:
    return {"type": name, "payload": payload}


# -- kimi-cli's own shapes -----------------------------------------------------------------------------------------


def _encode_result(event: ev.ToolResult) -> Json:
    payload: Json = {
        "tool_call_id": event.id or event.key,
        "return_value": {
            "is_error": event.is_error,
            "output": event.output,
            "message": event.message,
            "display": encode_display(event.display),
            "extras": None,
        },
        "key": event.key,
        "duration_s": round(event.duration_s, 4),
    }
    if event.interrupted:
        payload["interrupted"] = True
    if event.rejected:
        payload["rejected"] = True
    return payload


def _encode_status(event: ev.StatusUpdate) -> Json:
    usage: Json | None = None
    if event.step_input is not None:
        usage = {
            "input_other": event.step_input,
            "output": event.step_output or 0,
            "input_cache_read": 0,
            "input_cache_creation": 0,
        }
    return {
        "context_usage": round(event.used / event.limit, 6) if event.limit else 0.0,
        "context_tokens": event.used,
        "max_context_tokens": event.limit,
        "token_usage": usage,
        "message_id": None,
        "plan_mode": False,
        "mcp_status": None,
        **{name: getattr(event, name) for name in STATUS_FIELDS},
    }


def _encode_approval(event: ev.ApprovalRequest) -> Json:
    payload: Json = {
        "id": event.id,
        "tool_call_id": event.key,
        "sender": event.tool,
        "action": event.question,
        "description": event.detail,
        "source_kind": None,
        "source_id": None,
        "agent_id": None,
        "subagent_type": None,
        "source_description": None,
        "display": encode_display(event.display),
        "where": event.where,
        "session_offer": event.session_offer,
    }
    return payload if event.kind == "tool" else payload | {"kind": event.kind}


# -- events that are stored field by field -------------------------------------------------------------------------


def _encode_fields(event: Event) -> Json:
    return {
        field.name: list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        for field in fields(event)
        if (value := getattr(event, field.name)) is not None
    }
