"""Reads the events of `wire.jsonl`, ours and kimi-cli's.

It trusts nothing: what is unknown or does not fit gives None, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeGuard, cast

from kimi_tui.wire import events as ev
from kimi_tui.wire.display_codec import decode_display
from kimi_tui.wire.events import Event, Record
from kimi_tui.wire.names import ANSWERS_BACK, BY_NAME, CHOICES, EARLIER, STATUS_FIELDS

Json = dict[str, Any]

_FLAGS = frozenset({"estimated", "limit_estimated"})


class Decoder:
    """Reads stored events in their order.

    It remembers a little: which key a call of kimi-cli's was given (its ids repeat), arguments that are stored once, and
    the figures that a status leaves out because they did not change.
    """

    def __init__(self) -> None:
        self._n_calls = 0
        self._keys: dict[str, str] = {}
        self._last_key = ""
        self._arguments: dict[str, list[str]] = {}
        self._status = ev.StatusUpdate(0, 0, 0)

    def decode_record(self, line: Mapping[str, Any], seq: int) -> Record | None:
        """One line of `wire.jsonl`; `seq` is the number it gets where it bears none."""
        message = line.get("message")
        if not isinstance(message, dict):
            return None
        event = self.decode(cast("Mapping[str, Any]", message))
        if event is None:
            return None
        at, own_seq = line.get("timestamp"), line.get("seq")
        return Record(
            own_seq if _is_int(own_seq) else seq,
            float(at) if isinstance(at, int | float) else 0.0,
            event,
        )

    def decode(self, message: Mapping[str, Any]) -> Event | None:
        """One event, or None where it is unknown or makes no sense."""
        name, payload = message.get("type"), message.get("payload")
        if not isinstance(name, str) or not isinstance(payload, dict):
            return None
        data = cast("Json", payload)
        match name:
            case "ToolCall":
                return self._tool_call(data)
            case "ToolCallPart":
                return self._tool_call_part(data)
            case "ToolStarted":
                return self._tool_started(data)
            case "ToolResult":
                return self._tool_result(data)
            case "StatusUpdate":
                return self._status_update(data)
            case _:
                return _decode_plain(name, data)

    def _tool_call(self, data: Json) -> Event | None:
        function = data.get("function")
        if not isinstance(function, dict):
            return None
        body = cast("Json", function)
        name, arguments = body.get("name"), body.get("arguments")
        if not isinstance(name, str):
            return None
        call_id, key = _text(data, "id"), _text(data, "key")
        if not key:
            self._n_calls += 1
            key = f"{call_id}@{self._n_calls}"
            self._keys[call_id] = key
        self._last_key = key
        text = arguments if isinstance(arguments, str) else ""
        self._arguments[key] = [text]
        return ev.ToolCall(key, name, text, "" if call_id == key else call_id)

    def _tool_call_part(self, data: Json) -> Event | None:
        key = _text(data, "key") or self._last_key
        part = data.get("arguments_part")
        if not key or not isinstance(part, str):
            return None
        self._arguments.setdefault(key, []).append(part)
        return ev.ToolCallPart(key, part)

    def _tool_started(self, data: Json) -> Event | None:
        key, name = _text(data, "key"), _text(data, "name")
        arguments = data.get("arguments")
        if not key:
            return None
        if not isinstance(arguments, str):
            arguments = "".join(self._arguments.get(key, ()))
        return ev.ToolStarted(key, name, arguments)

    def _tool_result(self, data: Json) -> Event | None:
        value = data.get("return_value")
        call_id = _text(data, "tool_call_id")
        key = _text(data, "key") or self._keys.get(call_id, call_id)
        if not isinstance(value, dict) or not key:
            return None
        self._arguments.pop(key, None)
        result = cast("Json", value)
        duration_s = data.get("duration_s")
        return ev.ToolResult(
            key=key,
            is_error=result.get("is_error") is True,
            output=_joined_text(result.get("output")),
            message=_text(result, "message"),
            display=decode_display(result.get("display")),
            duration_s=float(duration_s) if isinstance(duration_s, int | float) else 0.0,
            interrupted=data.get("interrupted") is True,
            rejected=data.get("rejected") is True,
            id="" if call_id == key else call_id,
        )

    def _status_update(self, data: Json) -> Event:
        last = self._status
        values: Json = {
            "used": data.get("context_tokens"),
            "limit": data.get("max_context_tokens"),
            **{name: data.get(name) for name in STATUS_FIELDS},
        }
        usage = data.get("token_usage")
        if isinstance(usage, dict) and "step_input" not in data:
            parts = cast("Json", usage)
            sent = [parts.get("input_other"), parts.get("input_cache_read")]
            values["step_input"] = sum(n for n in sent if _is_int(n))
            values["step_output"] = parts.get("output")
            if "total_input" not in data:
                # kimi-cli tells what each call took, and no totals.
                totals = {
                    "total_input": (last.total_input, values["step_input"]),
                    "total_cached": (last.total_cached, parts.get("input_cache_read")),
                    "total_output": (last.total_output, parts.get("output")),
                }
                values |= {k: old + new for k, (old, new) in totals.items() if _is_int(new)}
        kept: Json = {
            name: value
            for name, value in values.items()
            if type(value) is (bool if name in _FLAGS else int)
        }
        for name in ("step_input", "step_output"):
            kept.setdefault(name, None)
        correction = data.get("correction")
        if isinstance(correction, float):
            kept["correction"] = correction
        kept["model"] = _text(data, "model")
        self._status = _replaced(last, kept)
        return self._status


def _decode_plain(name: str, data: Json) -> Event | None:
    match name:
        case "TurnBegin":
            images = data.get("images")
            return ev.TurnBegin(
                _joined_text(data.get("user_input")),
                data.get("resumed") is True,
                images if _is_int(images) else _count_images(data.get("user_input")),
            )
        case "StepBegin":
            n = data.get("n")
            return ev.StepBegin(n) if _is_int(n) else None
        case "StepRetry":
            return _decode_retry(data)
        case "ContentPart":
            return _decode_part(data)
        case "ApprovalRequest":
            return _decode_approval(data)
        case "ApprovalResponse" | "ApprovalRequestResolved":
            answer = ANSWERS_BACK.get(_text(data, "response"))
            request_id = _text(data, "request_id")
            if answer is None or not request_id:
                return None
            return ev.ApprovalResolved(
                request_id, cast("ev.ApprovalAnswer", answer), _text(data, "feedback")
            )
        case "SteerInput" | "SteerWithdrawn":
            return ev.SteerTaken(
                _text(data, "id"),
                _joined_text(data.get("user_input")),
                name == "SteerWithdrawn",
                number if _is_int(number := data.get("number")) else 0,
            )
        case _:
            kind = BY_NAME.get(name)
            return None if kind is None else _decode_fields(kind, data)


def _decode_approval(data: Json) -> Event | None:
    request_id = _text(data, "id")
    if not request_id:
        return None
    return ev.ApprovalRequest(
        id=request_id,
        key=_text(data, "tool_call_id"),
        tool=_text(data, "sender"),
        question=_text(data, "action"),
        detail=_text(data, "description"),
        where=_text(data, "where"),
        display=decode_display(data.get("display")),
        session_offer=_text(data, "session_offer"),
        kind="dmail" if data.get("kind") == "dmail" else "tool",
    )


def _decode_retry(data: Json) -> Event | None:
    n, next_attempt, most = data.get("n"), data.get("next_attempt"), data.get("max_attempts")
    wait_s, status = data.get("wait_s"), data.get("status_code")
    if not (_is_int(n) and _is_int(next_attempt) and _is_int(most)):
        return None
    return ev.StepRetry(
        n=n,
        attempt=next_attempt,
        max_attempts=most,
        wait_s=float(wait_s) if isinstance(wait_s, int | float) else 0.0,
        reason=_text(data, "error_type"),
        status=status if _is_int(status) else None,
    )


def _decode_part(data: Json) -> Event | None:
    match data.get("type"):
        case "text" if isinstance(data.get("text"), str):
            return ev.TextPart(data["text"])
        case "think" if isinstance(data.get("think"), str):
            return ev.ThinkPart(data["think"])
        case _:
            return None


def _decode_fields(kind: type, data: Json) -> Event | None:
    source = {**EARLIER.get(kind, {}), **data}
    values: Json = {}
    for name, wanted in _fields_of(kind):
        if name not in source:
            continue
        value = source[name]
        if wanted == "tuple[str, ...]" and isinstance(value, list):
            values[name] = tuple(x for x in cast("list[object]", value) if isinstance(x, str))
        elif _fits(wanted, value):
            values[name] = value
        else:
            return None
    try:
        return kind(**values)
    except TypeError:  # a field without a default is missing
        return None


@cache
def _fields_of(kind: type) -> tuple[tuple[str, str], ...]:
    """Every field's name and the type that is written there."""
    return tuple((field.name, str(field.type).replace('"', "'")) for field in fields(kind))


def _fits(wanted: str, value: object) -> bool:
    if wanted in CHOICES:
        return isinstance(value, str) and value in CHOICES[wanted]
    match wanted:
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return _is_int(value)
        case "float":
            return isinstance(value, int | float)
        case _:
            return False


def _replaced(status: ev.StatusUpdate, values: Json) -> ev.StatusUpdate:
    whole: Json = {name: getattr(status, name) for name, _ in _fields_of(ev.StatusUpdate)}
    return ev.StatusUpdate(**(whole | values))


# -- small readers -------------------------------------------------------------------------------------------------


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _joined_text(value: object) -> str:
    """A text, or the text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts: list[str] = []
    for part in cast("list[object]", value):
        if isinstance(part, dict):
            text = cast("Json", part).get("text")
            if isinstance(text, str):
                texts.append(text)
    return "".join(texts)


def _count_images(value: object) -> int:
    if not isinstance(value, list):
        return 0
    return sum(
        1
        for part in cast("list[object]", value)
        if isinstance(part, dict) and cast("Json", part).get("type") == "image_url"
    )
