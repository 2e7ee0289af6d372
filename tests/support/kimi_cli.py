"""A model of how kimi-cli 1.52 reads a session's folder with its own classes: the fields that it requires, and the records
that it refuses.

kimi-cli skips a line of `context.jsonl` that it cannot read, with a warning; here that is an error. It stops reading
`wire.jsonl` at an event of an unknown type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError, field_validator

Json = dict[str, Any]


class _Text(BaseModel):
    type: Literal["text"]
    text: str


class _Think(BaseModel):
    type: Literal["think"]
    think: str
    encrypted: str | None = None


class _Url(BaseModel):
    url: str
    id: str | None = None


class _Image(BaseModel):
    type: Literal["image_url"]
    image_url: _Url


_Part = _Text | _Think | _Image


class _Function(BaseModel):
    name: str
    arguments: str | None


class _ToolCall(BaseModel):
    type: Literal["function"] = "function"
    id: str
    function: _Function
    extras: Json | None = None


class KimiMessage(BaseModel):
    """A message as kimi-cli restores it."""

    role: Literal["system", "user", "assistant", "tool"]
    name: str | None = None
    # The field has no default in kimi-cli, so a call of the constructor without it fails.
    content: list[_Part]
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    partial: bool | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _as_parts(cls, value: Any) -> Any:
        if value is None:
            return []
        return [{"type": "text", "text": value}] if isinstance(value, str) else value


@dataclass
class Restored:
    """The result of its `Context.restore` for a context file."""

    system_prompt: str | None = None
    messages: list[KimiMessage] = field(default_factory=list[KimiMessage])
    token_count: int = 0
    n_checkpoints: int = 0


def restore(file: Path) -> Restored:
    """Read a context file.

    Raises:
        ValueError: kimi-cli would leave a record out.
    """
    restored = Restored()
    for line in file.read_text("utf-8").splitlines():
        record = json.loads(line)
        match record:
            case {"role": "_system_prompt", "content": str(prompt)}:
                restored.system_prompt = prompt
            case {"role": "_usage", "token_count": int(count)}:
                restored.token_count = count
            case {"role": "_checkpoint", "id": int(number)}:
                restored.n_checkpoints = number + 1
            case _:
                restored.messages.append(KimiMessage.model_validate(record))
    return restored


class _Begin(BaseModel):
    user_input: str | list[_Part]


class _Nothing(BaseModel):
    pass


class _StepBegin(BaseModel):
    n: int


class _StepRetry(BaseModel):
    n: int
    next_attempt: int
    max_attempts: int
    wait_s: float
    error_type: str
    status_code: int | None = None


class _Usage(BaseModel):
    input_other: int
    output: int
    input_cache_read: int = 0
    input_cache_creation: int = 0


class _Status(BaseModel):
    context_usage: float | None = None
    context_tokens: int | None = None
    max_context_tokens: int | None = None
    token_usage: _Usage | None = None
    message_id: str | None = None
    plan_mode: bool | None = None
    mcp_status: None = None


class _ToolCallPart(BaseModel):
    arguments_part: str | None = None


class _Brief(BaseModel):
    type: Literal["brief"]
    text: str


class _Diff(BaseModel):
    type: Literal["diff"]
    path: str
    old_text: str
    new_text: str
    old_start: int = 1
    new_start: int = 1
    is_summary: bool = False


class _Shell(BaseModel):
    type: Literal["shell"]
    language: str
    command: str


class _TodoItem(BaseModel):
    title: str
    status: Literal["pending", "in_progress", "done"]


class _Todo(BaseModel):
    type: Literal["todo"]
    items: list[_TodoItem]


class _Unknown(BaseModel):
    # Blocks of other types are kept as they are, but blocks of these four types must be valid.
    type: str

    @field_validator("type")
    @classmethod
    def _is_unknown(cls, value: str) -> str:
        if value in {"brief", "diff", "shell", "todo"}:
            raise ValueError("a broken block")
        return value


_Display = list[_Brief | _Diff | _Shell | _Todo | _Unknown]


class _Returned(BaseModel):
    is_error: bool
    output: str | list[_Part]
    message: str
    display: _Display
    extras: Json | None = None


class _ToolResult(BaseModel):
    tool_call_id: str
    return_value: _Returned


class _Approval(BaseModel):
    id: str
    tool_call_id: str
    sender: str
    action: str
    description: str
    source_kind: Literal["foreground_turn", "background_agent"] | None = None
    source_id: str | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    source_description: str | None = None
    display: _Display = []


class _Answer(BaseModel):
    request_id: str
    response: Literal["approve", "approve_for_session", "reject"]
    feedback: str = ""


class _Beside(BaseModel):
    parent_tool_call_id: str | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    event: Json


_TYPES: dict[str, Any] = {
    "TurnBegin": _Begin,
    "SteerInput": _Begin,
    "TurnEnd": _Nothing,
    "StepBegin": _StepBegin,
    "StepInterrupted": _Nothing,
    "StepRetry": _StepRetry,
    "CompactionBegin": _Nothing,
    "CompactionEnd": _Nothing,
    "StatusUpdate": _Status,
    "ContentPart": _Part,
    "ToolCall": _ToolCall,
    "ToolCallPart": _ToolCallPart,
    "ToolResult": _ToolResult,
    "ApprovalRequest": _Approval,
    "ApprovalResponse": _Answer,
    "SubagentEvent": _Beside,
}


def parse(message: Json) -> Any:
    """Read the event of a record in kimi-cli's terms.

    Raises:
        ValueError: kimi-cli has no such type of event, or refuses its payload.
    """
    kind, payload = message["type"], message["payload"]
    if not isinstance(kind, str) or not isinstance(payload, dict):
        raise ValueError(f"no event: {message}")
    if kind == "SubagentEvent":
        parse(payload["event"])
    if kind not in _TYPES:
        raise ValueError(f"an event that only another program has: {kind}")
    return TypeAdapter(_TYPES[kind]).validate_python(payload)


class _Record(BaseModel):
    timestamp: float
    message: Json


class _Metadata(BaseModel):
    type: Literal["metadata"] = "metadata"
    protocol_version: str


def parse_line(line: str) -> Any | None:
    """Return the event of a line of `wire.jsonl` after the first one, in kimi-cli's terms; None if kimi-cli skips the line.

    kimi-cli tries to read every line as metadata first, and its replays and exports skip lines of metadata (its `wire/file.py`).

    Raises:
        ValueError: kimi-cli refuses the line, and with it the rest of the file.
    """
    with suppress(ValidationError):
        _Metadata.model_validate_json(line)
        return None
    return parse(_Record.model_validate_json(line).message)


def events(file: Path) -> Iterator[Any]:
    """Yield the events of a `wire.jsonl` in kimi-cli's terms.

    Raises:
        ValueError: kimi-cli refuses a line.
    """
    first, *lines = file.read_text("utf-8").splitlines()
    _Metadata.model_validate_json(first)
    for line in lines:
        if (event := parse_line(line)) is not None:
            yield event


def title(folder: Path) -> str:
    """Return the title of a session in kimi-cli's list of sessions."""
    state = _State.model_validate_json((folder / "state.json").read_text("utf-8"))
    if state.custom_title:
        return state.custom_title
    for event in events(folder / "wire.jsonl"):
        if isinstance(event, _Begin):
            said = event.user_input
            parts = [said] if isinstance(said, str) else [p.text for p in said if p.type == "text"]
            return " ".join(parts)[:50]
    return "Untitled"


class _Approvals(BaseModel):
    yolo: bool = False
    afk: bool = False
    auto_approve_actions: set[str] = set()


class _State(BaseModel):
    version: int = 1
    approval: _Approvals = _Approvals()
    additional_dirs: list[str] = []
    custom_title: str | None = None
    title_generated: bool = False
    title_generate_attempts: int = 0
    plan_mode: bool = False
    plan_session_id: str | None = None
    plan_slug: str | None = None
    wire_mtime: float | None = None
    archived: bool = False
    archived_at: float | None = None
    auto_archive_exempt: bool = False
    todos: list[_TodoItem] = []
