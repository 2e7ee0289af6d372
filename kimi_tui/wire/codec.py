"""Encodes events, with the display blocks in them, as the JSON of `wire.jsonl`, and decodes it.

If kimi-cli has a name for an event, its name and keys are used, with our own keys beside them; other events are types of our
own, stored field by field, in lines that kimi-cli skips. `encode_record` writes a whole line. A `Decoder` reads both programs'
events and trusts nothing: an unknown or invalid event gives None, never an error.

A diff becomes one kimi-cli `diff` block for each group of neighbouring lines; its key `signs` says which line is which, so
that reading restores exactly what was written. Blocks of another program are read as far as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import PurePosixPath
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, TypeVar, cast, get_args, get_origin, get_type_hints

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line
from kimi_tui.tool_cards import (
    MAX_WORD,
    BriefBlock,
    DiffBlock,
    DiffLine,
    DisplayBlock,
    ImageBlock,
    RequestKind,
    ShellBlock,
    TodoBlock,
    TodoItem,
    card_from,
    card_of,
    card_record,
)
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event, EventRecord

T = TypeVar("T")
_STORED_AS_OTHERS = (ev.TextPart, ev.ThinkPart, ev.ApprovalResolved, ev.SteerTaken)
"""The events that are stored under kimi-cli's names for them, and not under those of their classes."""
_KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind for kind in get_args(Event) if kind not in _STORED_AS_OTHERS
}
"""All other events by name. An event is stored by its fields unless `_encode` has a form for it."""
_KIMI_CLI_DEFAULTS: dict[type, Json] = {
    ev.TurnEnd: {"reason": "done"},
    ev.CompactionBegin: {"tokens_before": 0, "automatic": False},
    ev.CompactionEnd: {"tokens_before": 0, "tokens_after": 0},
}
"""The values of fields that kimi-cli does not write."""
_ANSWERS: dict[ev.ApprovalAnswer, str] = {
    "once": "approve",
    "session": "approve_for_session",
    "no": "reject",
    "project": "approve_for_session",
}
"""kimi-cli's words. It has none for a yes for the project, so that `scope` tells it beside that for the session."""
_ANSWER_OF: dict[str, ev.ApprovalAnswer] = {
    theirs: ours for ours, theirs in _ANSWERS.items() if ours != "project"
}
_LIMITS = ("steps", "budget")
"""The kinds of a `TurnEnd` that are stored under `limit`: older versions drop one whose `kind` they do not know."""
_LEFT_BEHIND = {
    "steps": "steps_left",
    "messages": "messages_left",
    "files": "files_left",
    "line_name": "line_name",
}
"""The fields of `LeftBehind`, which are stored among those of `LineChanged`, by name."""
_OURS_ALONE = (ev.CheckpointCreated, ev.ContextReverted, ev.LineChanged)
"""Events that kimi-cli does not have. The last such event in a fork has no number, since events of kimi-cli have none."""
_KIMI_CLI_NAMES = frozenset(
    {
        "TurnBegin",
        "TurnEnd",
        "StepBegin",
        "StepInterrupted",
        "StepRetry",
        "SteerInput",
        "CompactionBegin",
        "CompactionEnd",
        "StatusUpdate",
        "ContentPart",
        "ToolCall",
        "ToolCallPart",
        "ToolResult",
        "ApprovalRequest",
        "ApprovalResponse",
    }
)
"""The types of events that kimi-cli has. It refuses to replay or export a session with any other type."""
_SKIPPED_BY_KIMI_CLI = {"protocol_version": ""}
"""A line with this key is metadata for kimi-cli (`parse_wire_file_line` in its `wire/file.py`, version 1.52), which it skips
after the first line."""
_BESIDE = "SubagentEvent"
"""The type of an event of an agent beside the session's own; its payload contains that event."""
_STATUS_FIELDS = tuple(name for name in ev.StatusUpdate._fields if name not in {"used", "limit"})


Json = dict[str, Any]
_MAX_FOREIGN_LINES = 400
_SIGNS = frozenset(" -+")
_MAX_COUNTED = 100


def _is_whole(value: object) -> TypeGuard[int]:
    """Return whether the value is a whole number within ±2^53."""
    return type(value) is int and -_MAX_WHOLE <= value <= _MAX_WHOLE


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return whether the value is a number within ±2^53, and not NaN."""
    return _is_whole(value) or (isinstance(value, float) and -_MAX_WHOLE <= value <= _MAX_WHOLE)


def _seconds_of(value: object) -> float:
    """Return a duration, or a time since 1970, in seconds; 0 if it is no number or outside the calendar."""
    return float(value) if _is_number(value) and 0 <= value <= _MAX_SECONDS else 0.0


def _encode(event: Event) -> tuple[str, Json]:
    """Return the name and the payload with which an event is stored."""
    match event:
        case ev.TurnBegin(text, resumed, images):
            payload: Json = {"user_input": text}
            if resumed:
                payload["resumed"] = True
            return "TurnBegin", _with_images(payload, images)
        case ev.TurnEnd(kind=kind) if kind in _LIMITS:
            return "TurnEnd", _encode_fields(event) | {"kind": "", "limit": kind}
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
        case ev.ToolCall(key, name, arguments, call_id, card):
            call: Json = {
                "type": "function",
                "id": call_id or key,
                "function": {"name": name, "arguments": arguments},
                "extras": None,
                "key": key,
            }
            if card is not None:
                call["card"] = card_record(card)
            return "ToolCall", call
        case ev.ToolCallPart(key, arguments):
            return "ToolCallPart", {"arguments_part": arguments, "key": key}
        case ev.ToolResult():
            return "ToolResult", _encode_result(event)
        case ev.StatusUpdate():
            return "StatusUpdate", _encode_status(event)
        case ev.ApprovalRequest():
            return "ApprovalRequest", _encode_approval(event)
        case ev.ApprovalResolved(request_id, answer, feedback):
            response: Json = {
                "request_id": request_id,
                "response": _ANSWERS[answer],
                "feedback": feedback,
            }
            if answer == "project":
                response["scope"] = "project"
            return "ApprovalResponse", response
        case ev.MarksChanged(names, pins):
            return "MarksChanged", {
                "names": [list(one) for one in names],
                "pins": [list(one) for one in pins],
            }
        case ev.FilesAttached(number, files, images):
            return "FilesAttached", _with_images({"number": number, "files": list(files)}, images)
        case ev.SteerQueued(steer_id, text, images, when):
            payload = {"id": steer_id, "text": text}
            if when != "now":
                payload["when"] = when
            return "SteerQueued", _with_images(payload, images)
        case ev.SteerTaken(steer_id, text, withdrawn, number, images, handed_back):
            payload = {"user_input": text, "id": steer_id, "number": number}
            if handed_back:
                payload["handed_back"] = True
            name = "SteerWithdrawn" if withdrawn else "SteerInput"
            return name, _with_images(payload, images)
        case ev.LineChanged():
            payload = _encode_fields(event)
            left = _encode_fields(payload.pop("left"))
            return "LineChanged", payload | {_LEFT_BEHIND[name]: left[name] for name in left}
        case _:
            return type(event).__name__, _encode_fields(event)


def _encode_fields(value: Any) -> Json:
    return {
        field.name: list(cast("tuple[object, ...]", one)) if isinstance(one, tuple) else one
        for field in fields(value)
        if (one := getattr(value, field.name)) is not None
    }


def _with_images(payload: Json, images: Sequence[ImageBlock]) -> Json:
    return {**payload, "images": _encode_display(images)} if images else payload


def encode_record(record: EventRecord) -> Json:
    """Return a whole line of `wire.jsonl` as an object."""
    name, payload = _encode(record.event)
    message: Json = {"type": name, "payload": payload}
    if record.source:
        # kimi-cli stores an event of a subagent in this shape, which readers that know of a single agent ignore.
        message = {"type": _BESIDE, "payload": {"agent_id": record.source, "event": message}}
    line: Json = {"timestamp": record.at, "seq": record.seq, "message": message}
    return line if name in _KIMI_CLI_NAMES else line | _SKIPPED_BY_KIMI_CLI


def encode_event(event: Event) -> Json:
    """Return the payload with which an event is stored."""
    return _encode(event)[1]


def decode_event(name: str, payload: Mapping[str, Any]) -> Event | None:
    """Return the event of a payload; None if it is none."""
    return _decode_plain(name, dict(payload))


# -- kimi-cli's own shapes -----------------------------------------------------------------------------------------


def _encode_result(event: ev.ToolResult) -> Json:
    payload: Json = {
        "tool_call_id": event.id or event.key,
        "return_value": {
            "is_error": event.is_error,
            "output": event.output,
            "message": event.message,
            "display": _encode_display(event.display),
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
        "agent_id": event.agent or None,
        "subagent_type": None,
        "source_description": None,
        "display": _encode_display(event.display),
        "where": event.where,
        "session_offer": event.session_offer,
    }
    if event.project_offer:
        payload["project_offer"] = event.project_offer
    if event.kind != "tool":
        payload["kind"] = event.kind
    if event.options:
        payload["options"] = list(event.options)
    if event.multi_select:
        payload["multi_select"] = True
    if event.words_offer:
        payload["words_offer"] = event.words_offer
    if event.no_offer:
        payload["no_offer"] = event.no_offer
    if not event.stops:
        payload["stops"] = False
    if event.changeable != card_of(event.tool).is_command:
        payload["changeable"] = event.changeable
    if event.checkpoint_id != -1:
        payload["checkpoint_id"] = event.checkpoint_id
    if event.topic:
        payload["topic"] = event.topic
    return payload


# -- reading -------------------------------------------------------------------------------------------------------


class Decoder:
    """Reads stored events in order.

    It keeps values between calls that later events omit: the key given to a call of kimi-cli (its ids repeat), the arguments
    of a call, and the unchanged figures of a status.
    """

    def __init__(self) -> None:
        self._n_calls = 0
        self._keys: dict[str, str] = {}
        self._last_key = ""
        self._arguments: dict[str, list[str]] = {}
        self._status = ev.StatusUpdate(0, 0, 0)
        self._beside: dict[str, Decoder] = {}
        """The decoders of agents beside the session's own, by name; each has calls and figures of its own."""

    def decode_record(self, line: Mapping[str, Any], seq: int) -> EventRecord | None:
        """Decode one line of `wire.jsonl`; `seq` is its number if it has none itself."""
        message = line.get("message")
        if not isinstance(message, dict):
            return None
        event, source = self._decode_sourced(cast("Mapping[str, Any]", message))
        if event is None:
            return None
        at, own_seq = line.get("timestamp"), line.get("seq")
        # A record has tens of thousands of lines, nearly all of which have a time and a number of ours.
        seconds = at if type(at) is float and 0 <= at <= _MAX_SECONDS else _seconds_of(at)
        foreign = own_seq is None and "seq" not in line and not isinstance(event, _OURS_ALONE)
        return EventRecord(own_seq if _is_whole(own_seq) else seq, seconds, event, foreign, source)

    def _decode_sourced(self, message: Mapping[str, Any]) -> tuple[Event | None, str]:
        """Return one event, and the name of the agent whose event it is; empty for the session's own."""
        if message.get("type") != _BESIDE:
            return self.decode(message), ""
        payload = lenient_json.mapping(message.get("payload"))
        source = _text(payload, "agent_id")[:MAX_WORD]
        if not source:
            return None, ""
        decoder = self._beside.setdefault(source, Decoder())
        return decoder.decode(lenient_json.mapping(payload.get("event"))), source

    def decode(self, message: Mapping[str, Any]) -> Event | None:
        """Decode one event; None if it is unknown or invalid."""
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
        card = data.get("card")
        return ev.ToolCall(
            key,
            name,
            text,
            "" if call_id == key else call_id,
            card_from(cast("Json", card)) if isinstance(card, dict) else None,
        )

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
            display=_decode_display(result.get("display")),
            duration_s=_seconds_of(duration_s),
            interrupted=data.get("interrupted") is True,
            rejected=data.get("rejected") is True,
            id="" if call_id == key else call_id,
        )

    def _status_update(self, data: Json) -> Event:
        last = self._status
        usage = data.get("token_usage")
        if isinstance(usage, dict) and "step_input" not in data:
            data = {**data, **_figures_of_call(cast("Json", usage), data, last)}
        # Every third record is a status, so this is written for speed.
        values: list[Any] = [
            value
            if fits(value := data.get(key))
            else (was if otherwise is _AS_IT_WAS else otherwise)
            for (key, fits, otherwise), was in zip(_STATUS, last, strict=True)
        ]
        self._status = ev.StatusUpdate._make(values)
        return self._status


def _figures_of_call(usage: Json, data: Json, last: ev.StatusUpdate) -> Json:
    """Return kimi-cli's figures of a call under our names: it reports the tokens of each call, and no totals."""
    sent = [usage.get("input_other"), usage.get("input_cache_read")]
    step_input = sum(n for n in sent if _is_whole(n))
    figures: Json = {"step_input": step_input, "step_output": usage.get("output")}
    if "total_input" not in data:
        totals = {
            "total_input": (last.total_input, step_input),
            "total_cached": (last.total_cached, usage.get("input_cache_read")),
            "total_output": (last.total_output, usage.get("output")),
        }
        figures |= {name: old + new for name, (old, new) in totals.items() if _is_whole(new)}
    return figures


def _decode_plain(name: str, data: Json) -> Event | None:
    match name:
        case "TurnBegin":
            said = data.get("user_input")
            images = images_of(data.get("images", said))
            return ev.TurnBegin(_joined_text(said), data.get("resumed") is True, images)
        case "TurnEnd":
            limit = data.get("limit")
            return _decode_fields(ev.TurnEnd, data | {"kind": limit} if limit in _LIMITS else data)
        case "StepBegin":
            n = data.get("n")
            return ev.StepBegin(n) if _is_whole(n) else None
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
            if answer == "session" and data.get("scope") == "project":
                answer = "project"
            return ev.ApprovalResolved(request_id, answer, _text(data, "feedback"))
        case "MarksChanged":
            return ev.MarksChanged(
                tuple(_pairs(data.get("names"), _is_text)),
                tuple(_pairs(data.get("pins"), _is_whole)),
            )
        case "FilesAttached":
            number, files = data.get("number"), data.get("files")
            if not (_is_whole(number) and isinstance(files, list)):
                return None
            told = tuple(x for x in cast("list[object]", files) if isinstance(x, str))
            return ev.FilesAttached(number, told, images_of(data.get("images")))
        case "SteerQueued":
            steer_id, text = data.get("id"), data.get("text")
            if not (isinstance(steer_id, str) and isinstance(text, str)):
                return None
            when = "after the turn" if data.get("when") == "after the turn" else "now"
            return ev.SteerQueued(steer_id, text, images_of(data.get("images")), when)
        case "SteerInput" | "SteerWithdrawn":
            said = data.get("user_input")
            return ev.SteerTaken(
                _text(data, "id"),
                _joined_text(said),
                name == "SteerWithdrawn",
                number if _is_whole(number := data.get("number")) else 0,
                images_of(data.get("images", said)),
                data.get("handed_back") is True,
            )
        case "LineChanged":
            left = {ours: data[key] for ours, key in _LEFT_BEHIND.items() if key in data}
            changed = _decode_fields(
                ev.LineChanged, {key: one for key, one in data.items() if key != "left"}
            )
            known = _decode_fields(ev.LeftBehind, left)
            return None if changed is None or known is None else replace(changed, left=known)
        case _:
            kind = _KINDS.get(name)
            return None if kind is None else _decode_fields(kind, data)


def _decode_approval(data: Json) -> Event | None:
    request_id = _text(data, "id")
    if not request_id:
        return None
    kind, options = data.get("kind"), lenient_json.listing(data.get("options"))
    tool = _text(data, "sender")
    return ev.ApprovalRequest(
        id=request_id,
        key=_text(data, "tool_call_id"),
        agent=_text(data, "agent_id")[:MAX_WORD],
        tool=tool,
        question=_text(data, "action"),
        detail=_text(data, "description"),
        where=_text(data, "where"),
        display=_decode_display(data.get("display")),
        session_offer=_text(data, "session_offer"),
        project_offer=_text(data, "project_offer"),
        kind=cast(RequestKind, kind) if kind in get_args(RequestKind) else "tool",
        options=tuple(one for one in options if isinstance(one, str)),
        multi_select=data.get("multi_select") is True,
        words_offer=_text(data, "words_offer"),
        no_offer=_text(data, "no_offer"),
        stops=data.get("stops") is not False,
        # Older records lack the field; the card of the tool is used instead.
        changeable=data.get("changeable", card_of(tool).is_command) is True,
        checkpoint_id=at if _is_whole(at := data.get("checkpoint_id")) else -1,
        topic=cast(ev.PauseTopic, topic)
        if (topic := data.get("topic")) in get_args(ev.PauseTopic)
        else "",
    )


def _decode_retry(data: Json) -> Event | None:
    n, next_attempt, most = data.get("n"), data.get("next_attempt"), data.get("max_attempts")
    wait_s, status = data.get("wait_s"), data.get("status_code")
    if not (_is_whole(n) and _is_whole(next_attempt) and _is_whole(most)):
        return None
    return ev.StepRetry(
        n=n,
        attempt=next_attempt,
        max_attempts=most,
        wait_s=_seconds_of(wait_s),
        reason=_text(data, "error_type"),
        status=status if _is_whole(status) else None,
        left_s=_seconds_of(data.get("left_s")),
    )


def _decode_part(data: Json) -> Event | None:
    match data.get("type"):
        case "text" if isinstance(data.get("text"), str):
            return ev.TextPart(data["text"])
        case "think" if isinstance(data.get("think"), str):
            return ev.ThinkPart(data["think"])
        case _:
            return None


def _decode_fields(kind: type[T], data: Json) -> T | None:
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
"""Returns whether a value is valid for a field."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _fits(hint: Any) -> _Fits:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: isinstance(value, str) and value in choices
    if isinstance(hint, UnionType):
        any_of = [_fits(one) for one in get_args(hint)]
        return lambda value: any(fits(value) for fits in any_of)
    if hint is NoneType:
        return lambda value: value is None
    known: dict[Any, _Fits] = {int: _is_whole, float: _is_number, str: _is_text, bool: _is_flag}
    return known.get(hint, lambda _: False)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, _Fits, bool], ...]:
    """Return every field's name, its check, and whether it holds several such values."""
    found: list[tuple[str, _Fits, bool]] = []
    for name, hint in get_type_hints(kind).items():
        holds_many = get_origin(hint) is tuple
        found.append((name, _fits(get_args(hint)[0] if holds_many else hint), holds_many))
    return tuple(found)


_AS_IT_WAS = object()
"""The default of a field that keeps the value of the status before."""


def _status_fields() -> Iterator[tuple[str, _Fits, object]]:
    """Yield, for every field of a status, its stored key, its check, and its value if the key is missing."""
    keys = {"used": "context_tokens", "limit": "max_context_tokens"}
    for name, fits, _ in _fields_of(ev.StatusUpdate):
        if name in ("step_input", "step_output"):
            yield name, _is_whole, None
        else:
            yield keys.get(name, name), fits, "" if name == "model" else _AS_IT_WAS


_STATUS = tuple(_status_fields())


# -- small readers -------------------------------------------------------------------------------------------------


def _text(data: Mapping[str, Any], key: str) -> str:
    return lenient_json.text(data.get(key))


def _pairs(value: object, fits: _Fits) -> Iterator[tuple[str, Any]]:
    """Yield the pairs of a text and a valid value in a list."""
    for one in lenient_json.listing(value):
        match lenient_json.listing(one):
            case [str(name), found] if fits(found):
                yield name, found
            case _:
                pass


def _joined_text(value: object) -> str:
    """Return a text, or the joined text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    parts = lenient_json.listing(value)
    return "".join(lenient_json.text(lenient_json.mapping(part).get("text")) for part in parts)


# -- display blocks ------------------------------------------------------------------------------------------------


def _encode_display(blocks: Sequence[DisplayBlock]) -> list[Json]:
    """Return the blocks as JSON objects."""
    return [record for block in blocks for record in _encode_one(block)]


def _decode_display(records: object) -> tuple[DisplayBlock, ...]:
    """Return the blocks of these objects; unreadable ones are ignored."""
    if not isinstance(records, list):
        return ()
    blocks: list[DisplayBlock] = []
    for record in cast("list[object]", records):
        block = _decode_one(cast("Mapping[str, object]", record)) if _is_object(record) else None
        if block is None:
            continue
        before = blocks[-1] if blocks else None
        if (
            isinstance(block, DiffBlock)
            and isinstance(before, DiffBlock)
            and before.path == block.path
            and _continues(record)
        ):
            blocks[-1] = DiffBlock(
                before.path,
                before.added + block.added,
                before.removed + block.removed,
                before.lines + block.lines,
                before.created,
            )
        else:
            blocks.append(block)
    return tuple(blocks)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _continues(record: object) -> bool:
    return cast("Mapping[str, object]", record).get("first") is not True


def _encode_one(block: DisplayBlock) -> Iterator[Json]:
    match block:
        case BriefBlock(text):
            yield {"type": "brief", "text": text}
        case ShellBlock(command, exit_code, duration_s):
            yield {
                "type": "shell",
                "language": "bash",
                "command": command,
                "exit_code": exit_code,
                "duration_s": duration_s,
            }
        case TodoBlock(items):
            rows = [{"title": item.title, "status": item.status} for item in items]
            yield {"type": "todo", "items": rows}
        case ImageBlock():
            yield {"type": "image", **asdict(block)}
        case DiffBlock():
            yield from _encode_diff(block)


def _encode_diff(block: DiffBlock) -> Iterator[Json]:
    for position, run in enumerate(_runs(block.lines) or [()]):
        old = [line for line in run if line.sign != "+"]
        new = [line for line in run if line.sign != "-"]
        record: Json = {
            "type": "diff",
            "path": block.path,
            "old_text": "\n".join(line.text for line in old),
            "new_text": "\n".join(line.text for line in new),
            "old_start": next((line.number for line in run if line.sign == "-"), 1),
            "new_start": next((line.number for line in run if line.sign != "-"), 1),
            "is_summary": False,
            "signs": "".join(line.sign for line in run),
            # The first group has the counts of the whole diff, since lines may have been left out.
            "added": block.added if position == 0 else 0,
            "removed": block.removed if position == 0 else 0,
        }
        if position == 0:
            record["first"] = True
            record["created"] = block.created
        yield record


def _runs(lines: Sequence[DiffLine]) -> list[tuple[DiffLine, ...]]:
    """Split the lines wherever a number does not follow the one before on its side."""
    runs: list[tuple[DiffLine, ...]] = []
    current: list[DiffLine] = []
    next_old: int | None = None
    next_new: int | None = None
    for line in lines:
        expected = next_old if line.sign == "-" else next_new
        # A line feed inside a text (never written by us) would shift all later numbers; alone in a group it does no harm.
        if current and expected is not None and line.number != expected:
            runs.append(tuple(current))
            current, next_old, next_new = [], None, None
        current.append(line)
        if line.sign == "-":
            next_old = line.number + 1
        else:
            next_new = line.number + 1
            # Old numbers of unchanged lines are not stored, as they only go up by one.
            if line.sign == " " and next_old is not None:
                next_old += 1
    if current:
        runs.append(tuple(current))
    return runs


def _decode_one(record: Mapping[str, object]) -> DisplayBlock | None:
    match record.get("type"):
        case "brief":
            text = record.get("text")
            return BriefBlock(text) if isinstance(text, str) else None
        case "shell":
            return _decode_shell(record)
        case "todo":
            return _decode_todo(record)
        case "diff":
            return _decode_diff(record)
        case "image":
            return decode_image(record)
        case _:
            return None


def _decode_shell(record: Mapping[str, object]) -> ShellBlock | None:
    command = record.get("command")
    if not isinstance(command, str):
        return None
    exit_code = record.get("exit_code")
    duration_s = record.get("duration_s")
    return ShellBlock(
        command,
        exit_code if _is_whole(exit_code) else None,
        _seconds_of(duration_s),
    )


def _decode_todo(record: Mapping[str, object]) -> TodoBlock | None:
    items = record.get("items")
    if not isinstance(items, list):
        return None
    found: list[TodoItem] = []
    for item in cast("list[object]", items):
        if not isinstance(item, dict):
            continue
        row = cast("dict[str, object]", item)
        title, status = row.get("title"), row.get("status")
        if isinstance(title, str) and status in ("pending", "in_progress", "done"):
            found.append(TodoItem(title, status))
    return TodoBlock(tuple(found))


def decode_image(record: Mapping[str, object]) -> ImageBlock:
    """Return the facts of an image in a record, bounded."""
    name, media_type, sha256 = (
        value[:MAX_WORD] if isinstance(value := record.get(key), str) else ""
        for key in ("name", "media_type", "sha256")
    )
    return ImageBlock(
        one_line(name),
        one_line(media_type),
        _count(record, "width"),
        _count(record, "height"),
        _count(record, "n_bytes"),
        sha256,
    )


def images_of(value: object) -> tuple[ImageBlock, ...]:
    """Return the images in a record: from facts, or from content parts; a bare count gives that many blocks without facts."""
    if _is_whole(value):
        return (ImageBlock(),) * min(max(0, value), _MAX_COUNTED)
    found: list[ImageBlock] = []
    for one in lenient_json.listing(value):
        record = lenient_json.mapping(one)
        if record.get("type") == "image":
            found.append(decode_image(record))
        elif record.get("type") == "image_url":
            # The record is a content part; if its image is stored, the name of the file contains the hash.
            facts = lenient_json.mapping(record.get("image_url"))
            url = facts.get("url")
            stored = PurePosixPath(url) if isinstance(url, str) and len(url) < MAX_WORD else None
            hashed = stored.stem if stored is not None and stored.parent.name == "images" else ""
            found.append(decode_image({**facts, "sha256": hashed}))
    return tuple(found)


def _decode_diff(record: Mapping[str, object]) -> DiffBlock | None:
    path, old, new = record.get("path"), record.get("old_text"), record.get("new_text")
    if not (isinstance(path, str) and isinstance(old, str) and isinstance(new, str)):
        return None
    old_start, new_start = _positive(record, "old_start"), _positive(record, "new_start")
    signs = record.get("signs")
    if isinstance(signs, str) and set(signs) <= _SIGNS:
        lines = _lines_by_signs(signs, old, new, old_start, new_start)
        added, removed = _count(record, "added"), _count(record, "removed")
        return DiffBlock(path, added, removed, lines, record.get("created") is True)
    return _foreign_diff(path, old, new, old_start, new_start)


def _lines_by_signs(
    signs: str, old: str, new: str, old_start: int, new_start: int
) -> tuple[DiffLine, ...]:
    olds, news = old.split("\n"), new.split("\n")
    at_old = at_new = 0
    number_old, number_new = old_start, new_start
    seen_removed = False
    lines: list[DiffLine] = []
    for sign in signs:
        if sign == "-":
            text = olds[at_old] if at_old < len(olds) else ""
            lines.append(DiffLine("-", number_old, text))
            at_old += 1
            number_old += 1
            seen_removed = True
        else:
            text = news[at_new] if at_new < len(news) else ""
            lines.append(DiffLine(" " if sign == " " else "+", number_new, text))
            at_new += 1
            number_new += 1
            if sign == " ":
                at_old += 1
                if seen_removed:
                    number_old += 1
    return tuple(lines)


def _foreign_diff(path: str, old: str, new: str, old_start: int, new_start: int) -> DiffBlock:
    """Return the diff of kimi-cli's own block: its two texts are the changed place with a few lines around it."""
    olds = old.split("\n") if old else []
    news = new.split("\n") if new else []
    head = 0
    while head < min(len(olds), len(news)) and olds[head] == news[head]:
        head += 1
    tail = 0
    while tail < min(len(olds), len(news)) - head and olds[-1 - tail] == news[-1 - tail]:
        tail += 1
    lines = [DiffLine(" ", new_start + i, news[i]) for i in range(head)]
    lines += [DiffLine("-", old_start + i, olds[i]) for i in range(head, len(olds) - tail)]
    lines += [DiffLine("+", new_start + i, news[i]) for i in range(head, len(news) - tail)]
    lines += [DiffLine(" ", new_start + i, news[i]) for i in range(len(news) - tail, len(news))]
    added, removed = len(news) - head - tail, len(olds) - head - tail
    return DiffBlock(path, added, removed, tuple(lines[:_MAX_FOREIGN_LINES]), not olds)


def _positive(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    return value if _is_whole(value) and value > 0 else 1


def _count(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    return value if _is_whole(value) and value >= 0 else 0


# JSON numbers have no limit; a number that no float can hold would break later divisions.
_MAX_WHOLE = 1 << 53
# This is in the year 5138. Some calendars end at 9999, and a time zone shifts a time by up to a day.
_MAX_SECONDS = 1e11
