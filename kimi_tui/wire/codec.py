"""Events to the JSON of `wire.jsonl` and back.

Where kimi-cli has a name for an event, its name and keys are used and what is ours stands beside them; the rest are
types of our own, stored field by field, which it passes over. `encode` writes the `{"type", "payload"}` object of an
event, `encode_record` a whole line. A `Decoder` reads both programs' events and trusts nothing: what is unknown or does
not fit gives None, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from kimi_tui import lenient_json
from kimi_tui.wire import events as ev
from kimi_tui.wire.display import (
    ImageBlock,
    decode_display,
    encode_display,
    images_of,
    is_number,
    is_whole,
    seconds_of,
)
from kimi_tui.wire.events import Event, EventRecord

# By field: the first ten have no name at kimi-cli, the last four have an empty payload there.
_STORED_BY_FIELD: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        ev.ToolStarted,
        ev.ToolOutput,
        ev.ModeChanged,
        ev.JobsChanged,
        ev.NextMessage,
        ev.CheckpointCreated,
        ev.ContextReverted,
        ev.FilesChanged,
        ev.FilesRestored,
        ev.LineChanged,
        ev.Notice,
        ev.TurnEnd,
        ev.StepInterrupted,
        ev.CompactionBegin,
        ev.CompactionEnd,
    )
}
_KIMI_CLI_DEFAULTS: dict[type, Json] = {
    ev.TurnEnd: {"reason": "done"},
    ev.CompactionBegin: {"tokens_before": 0, "automatic": False},
    ev.CompactionEnd: {"tokens_before": 0, "tokens_after": 0},
}
"""What stands in for fields that kimi-cli does not write."""
_ANSWERS: dict[ev.ApprovalAnswer, str] = {
    "once": "approve",
    "session": "approve_for_session",
    "no": "reject",
}
_ANSWER_OF: dict[str, ev.ApprovalAnswer] = {theirs: ours for ours, theirs in _ANSWERS.items()}
_STATUS_FIELDS = tuple(name for name in ev.StatusUpdate._fields if name not in {"used", "limit"})


Json = dict[str, Any]


def _encode(event: Event) -> tuple[str, Json]:
    """The name and the payload under which an event is stored."""
    match event:
        case ev.TurnBegin(text, resumed, images):
            payload: Json = {"user_input": text}
            if resumed:
                payload["resumed"] = True
            return "TurnBegin", _with_images(payload, images)
        case ev.StepBegin(n):
            return "StepBegin", {"n": n}
        case ev.StepRetry():
            return "StepRetry", {
                "n": event.n,
                "next_attempt": event.attempt,
                "max_attempts": event.max_attempts,
                "wait_s": event.wait_s,
                "error_type": event.reason,
                "status_code": event.status,
                "left_s": event.left_s,
            }
        case ev.TextPart(text):
            return "ContentPart", {"type": "text", "text": text}
        case ev.ThinkPart(text):
            return "ContentPart", {"type": "think", "think": text, "encrypted": None}
        case ev.ToolCall(key, name, arguments, call_id):
            return "ToolCall", {
                "type": "function",
                "id": call_id or key,
                "function": {"name": name, "arguments": arguments},
                "extras": None,
                "key": key,
            }
        case ev.ToolCallPart(key, arguments):
            return "ToolCallPart", {"arguments_part": arguments, "key": key}
        case ev.ToolResult():
            return "ToolResult", _encode_result(event)
        case ev.StatusUpdate():
            return "StatusUpdate", _encode_status(event)
        case ev.ApprovalRequest():
            return "ApprovalRequest", _encode_approval(event)
        case ev.ApprovalResolved(request_id, answer, feedback):
            return "ApprovalResponse", {
                "request_id": request_id,
                "response": _ANSWERS[answer],
                "feedback": feedback,
            }
        case ev.FilesAttached(number, files, images):
            return "FilesAttached", _with_images({"number": number, "files": list(files)}, images)
        case ev.SteerQueued(steer_id, text, images):
            return "SteerQueued", _with_images({"id": steer_id, "text": text}, images)
        case ev.SteerTaken(steer_id, text, withdrawn, number, images):
            payload = {"user_input": text, "id": steer_id, "number": number}
            name = "SteerWithdrawn" if withdrawn else "SteerInput"
            return name, _with_images(payload, images)
        case _:
            return type(event).__name__, {
                field.name: list(cast("tuple[object, ...]", value))
                if isinstance(value, tuple)
                else value
                for field in fields(event)
                if (value := getattr(event, field.name)) is not None
            }


def _with_images(payload: Json, images: Sequence[ImageBlock]) -> Json:
    return {**payload, "images": encode_display(images)} if images else payload


def encode_record(record: EventRecord) -> Json:
    """A whole line of `wire.jsonl`."""
    name, payload = _encode(record.event)
    message = {"type": name, "payload": payload}
    return {"timestamp": record.at, "seq": record.seq, "message": message}


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
        **{name: getattr(event, name) for name in _STATUS_FIELDS},
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
    if event.kind != "tool":
        payload["kind"] = event.kind
    if event.options:
        payload["options"] = list(event.options)
    if event.multi_select:
        payload["multi_select"] = True
    if event.checkpoint_id != -1:
        payload["checkpoint_id"] = event.checkpoint_id
    return payload


# -- reading -------------------------------------------------------------------------------------------------------


class Decoder:
    """Reads stored events in their order.

    What events leave out because an earlier one said it is kept between calls: the key that a call of kimi-cli's was
    given (its ids repeat), the arguments of a call, and the figures of a status that did not change.
    """

    def __init__(self) -> None:
        self._n_calls = 0
        self._keys: dict[str, str] = {}
        self._last_key = ""
        self._arguments: dict[str, list[str]] = {}
        self._status = ev.StatusUpdate(0, 0, 0)

    def decode_record(self, line: Mapping[str, Any], seq: int) -> EventRecord | None:
        """One line of `wire.jsonl`; `seq` is the number it gets where it bears none."""
        message = line.get("message")
        if not isinstance(message, dict):
            return None
        event = self.decode(cast("Mapping[str, Any]", message))
        if event is None:
            return None
        at, own_seq = line.get("timestamp"), line.get("seq")
        return EventRecord(
            own_seq if is_whole(own_seq) else seq,
            seconds_of(at),
            event,
        )

    def decode(self, message: Mapping[str, Any]) -> Event | None:
        """One event, or None where it is unknown or makes no sense."""
        name, payload = message.get("type"), message.get("payload")
        if not isinstance(name, str) or not isinstance(payload, dict):
            return None
        data = cast("Json", payload)
        match name:
            case "StatusUpdate":
                return self._status_update(data)
            case "ToolCall":
                return self._tool_call(data)
            case "ToolCallPart":
                return self._tool_call_part(data)
            case "ToolStarted":
                return self._tool_started(data)
            case "ToolResult":
                return self._tool_result(data)
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
        text = lenient_json.text(arguments)
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
            duration_s=seconds_of(duration_s),
            interrupted=data.get("interrupted") is True,
            rejected=data.get("rejected") is True,
            id="" if call_id == key else call_id,
        )

    def _status_update(self, data: Json) -> Event:
        last = self._status
        usage = data.get("token_usage")
        if isinstance(usage, dict) and "step_input" not in data:
            data = {**data, **_figures_of_call(cast("Json", usage), data, last)}
        # Every third record is one of these.
        values: list[Any] = [
            value
            if fits(value := data.get(key))
            else (was if otherwise is _AS_IT_WAS else otherwise)
            for (key, fits, otherwise), was in zip(_STATUS, last, strict=True)
        ]
        self._status = ev.StatusUpdate._make(values)
        return self._status


def _figures_of_call(usage: Json, data: Json, last: ev.StatusUpdate) -> Json:
    """What kimi-cli tells of a call, under our names: it tells what each call took, and no totals."""
    sent = [usage.get("input_other"), usage.get("input_cache_read")]
    step_input = sum(n for n in sent if is_whole(n))
    figures: Json = {"step_input": step_input, "step_output": usage.get("output")}
    if "total_input" not in data:
        totals = {
            "total_input": (last.total_input, step_input),
            "total_cached": (last.total_cached, usage.get("input_cache_read")),
            "total_output": (last.total_output, usage.get("output")),
        }
        figures |= {name: old + new for name, (old, new) in totals.items() if is_whole(new)}
    return figures


def _decode_plain(name: str, data: Json) -> Event | None:
    match name:
        case "TurnBegin":
            said = data.get("user_input")
            images = images_of(data.get("images", said))
            return ev.TurnBegin(_joined_text(said), data.get("resumed") is True, images)
        case "StepBegin":
            n = data.get("n")
            return ev.StepBegin(n) if is_whole(n) else None
        case "StepRetry":
            return _decode_retry(data)
        case "ContentPart":
            return _decode_part(data)
        case "ApprovalRequest":
            return _decode_approval(data)
        case "ApprovalResponse" | "ApprovalRequestResolved":
            answer = _ANSWER_OF.get(_text(data, "response"))
            request_id = _text(data, "request_id")
            if answer is None or not request_id:
                return None
            return ev.ApprovalResolved(request_id, answer, _text(data, "feedback"))
        case "FilesAttached":
            number, files = data.get("number"), data.get("files")
            if not (is_whole(number) and isinstance(files, list)):
                return None
            told = tuple(x for x in cast("list[object]", files) if isinstance(x, str))
            return ev.FilesAttached(number, told, images_of(data.get("images")))
        case "SteerQueued":
            steer_id, text = data.get("id"), data.get("text")
            if not (isinstance(steer_id, str) and isinstance(text, str)):
                return None
            return ev.SteerQueued(steer_id, text, images_of(data.get("images")))
        case "SteerInput" | "SteerWithdrawn":
            said = data.get("user_input")
            return ev.SteerTaken(
                _text(data, "id"),
                _joined_text(said),
                name == "SteerWithdrawn",
                number if is_whole(number := data.get("number")) else 0,
                images_of(data.get("images", said)),
            )
        case _:
            kind = _STORED_BY_FIELD.get(name)
            return None if kind is None else _decode_fields(kind, data)


def _decode_approval(data: Json) -> Event | None:
    request_id = _text(data, "id")
    if not request_id:
        return None
    kind, options = data.get("kind"), lenient_json.listing(data.get("options"))
    return ev.ApprovalRequest(
        id=request_id,
        key=_text(data, "tool_call_id"),
        tool=_text(data, "sender"),
        question=_text(data, "action"),
        detail=_text(data, "description"),
        where=_text(data, "where"),
        display=decode_display(data.get("display")),
        session_offer=_text(data, "session_offer"),
        kind=cast(ev.RequestKind, kind) if kind in get_args(ev.RequestKind) else "tool",
        options=tuple(one for one in options if isinstance(one, str)),
        multi_select=data.get("multi_select") is True,
        checkpoint_id=at if is_whole(at := data.get("checkpoint_id")) else -1,
    )


def _decode_retry(data: Json) -> Event | None:
    n, next_attempt, most = data.get("n"), data.get("next_attempt"), data.get("max_attempts")
    wait_s, status = data.get("wait_s"), data.get("status_code")
    if not (is_whole(n) and is_whole(next_attempt) and is_whole(most)):
        return None
    return ev.StepRetry(
        n=n,
        attempt=next_attempt,
        max_attempts=most,
        wait_s=seconds_of(wait_s),
        reason=_text(data, "error_type"),
        status=status if is_whole(status) else None,
        left_s=seconds_of(data.get("left_s")),
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
    defaults = _KIMI_CLI_DEFAULTS.get(kind)
    source = {**defaults, **data} if defaults else data
    values: Json = {}
    for name, fits, holds_many in _fields_of(kind):
        if name not in source:
            continue
        value = source[name]
        if holds_many:
            if not isinstance(value, list):
                return None
            values[name] = tuple(x for x in cast("list[object]", value) if fits(x))
        elif fits(value):
            values[name] = value
        else:
            return None
    try:
        return kind(**values)
    except TypeError:  # a field without a default is missing
        return None


_Fits = Callable[[object], bool]
"""Whether a value makes sense as that of a field."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _fits(hint: Any) -> _Fits:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: isinstance(value, str) and value in choices
    known: dict[Any, _Fits] = {int: is_whole, float: is_number, str: _is_text, bool: _is_flag}
    return known.get(hint, lambda _: False)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, _Fits, bool], ...]:
    """Every field's name, what fits into it, and whether it holds many such."""
    found: list[tuple[str, _Fits, bool]] = []
    for name, hint in get_type_hints(kind).items():
        holds_many = get_origin(hint) is tuple
        found.append((name, _fits(get_args(hint)[0] if holds_many else hint), holds_many))
    return tuple(found)


_AS_IT_WAS = object()
"""In the place of a value: that of the status before."""


def _status_fields() -> Iterator[tuple[str, _Fits, object]]:
    """Of every field of a status under which key it stands, what fits, and what it is where that is missing."""
    keys = {"used": "context_tokens", "limit": "max_context_tokens"}
    for name, fits, _ in _fields_of(ev.StatusUpdate):
        if name in ("step_input", "step_output"):
            yield name, is_whole, None
        else:
            yield keys.get(name, name), fits, "" if name == "model" else _AS_IT_WAS


_STATUS = tuple(_status_fields())


# -- small readers -------------------------------------------------------------------------------------------------


def _text(data: Mapping[str, Any], key: str) -> str:
    return lenient_json.text(data.get(key))


def _joined_text(value: object) -> str:
    """A text, or the text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    parts = lenient_json.listing(value)
    return "".join(lenient_json.text(lenient_json.mapping(part).get("text")) for part in parts)
