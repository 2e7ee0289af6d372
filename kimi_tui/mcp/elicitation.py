"""Questions of a server to the person: a form of a few plain values, or an address that the person is to open."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import mcp_types

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line
from kimi_tui.tools.base import ApprovalQuestion, Approver, Asks
from kimi_tui.tools.outcome import ToolRejected

_MOST_FIELDS = 24
_MOST_OPTIONS = 20
_MOST_WORDS = 500
_LEAVE = "Leave it empty"
_YES, _NO = "Yes", "No"
_DONE = "I have done it"
_DECLINE = "Do not answer"

Value = str | int | float | bool | list[str] | None


def declined() -> mcp_types.ElicitResult:
    """Return the answer to a question that nobody answers."""
    return mcp_types.ElicitResult(action="decline")


async def answered(
    server: str, params: mcp_types.ElicitRequestParams, approver: Approver
) -> mcp_types.ElicitResult:
    """Put a question of a server to the person, and return the answer.

    Args:
        server: the name of the server.
        params: the question.
        approver: asks the person about the call during which the server asks.
    """
    try:
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            return await _address(server, params, approver)
        return await _form(server, params, approver)
    except ToolRejected:
        return declined()


async def _address(
    server: str, params: mcp_types.ElicitRequestURLParams, approver: Approver
) -> mcp_types.ElicitResult:
    parts = urlsplit(params.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return declined()
    said = await approver.ask(
        ApprovalQuestion(
            asks=Asks("question"),
            question=f"The MCP server {server} asks you to open an address: {one_line(params.message[:_MOST_WORDS])}",
            detail=one_line(params.url),
            where=f"open it yourself if you trust {one_line(parts.hostname)}; kimi-tui does not open it",
            options=(_DONE, _DECLINE),
            protected=True,
        )
    )
    return mcp_types.ElicitResult(action="accept") if said == _DONE else declined()


async def _form(
    server: str, params: mcp_types.ElicitRequestFormParams, approver: Approver
) -> mcp_types.ElicitResult:
    schema: dict[str, Any] = lenient_json.mapping(params.requested_schema)
    fields = lenient_json.mapping(schema.get("properties"))
    required = lenient_json.listing(schema.get("required"))
    asked = f"The MCP server {server} asks: {one_line(params.message[:_MOST_WORDS])}"
    if len(fields) > _MOST_FIELDS:
        return declined()
    if not fields:
        said = await _ask(approver, server, asked, "", (_YES, _NO))
        return mcp_types.ElicitResult(action="accept", content={}) if said == _YES else declined()
    content: dict[str, Value] = {}
    for name, part in fields.items():
        field = lenient_json.mapping(part)
        words = " · ".join(
            one_line(text[:_MOST_WORDS])
            for text in (
                lenient_json.text(field.get("title")) or name,
                lenient_json.text(field.get("description")),
            )
            if text
        )
        is_needed = name in required
        for _ in range(3):
            said = await _ask(approver, server, asked, words, _options(field, is_needed=is_needed))
            if said == _DECLINE:
                return declined()
            if not said or said == _LEAVE:
                if is_needed:
                    continue
                break
            value = _value(said, field)
            if value is not None:
                content[name] = value
                break
        else:
            return declined()
    return mcp_types.ElicitResult(action="accept", content=content)


async def _ask(
    approver: Approver, server: str, asked: str, words: str, options: tuple[str, ...]
) -> str:
    return await approver.ask(
        ApprovalQuestion(
            asks=Asks("question"),
            question=asked,
            detail=words,
            where=f"your answer goes to {server}: never give it a password or a key",
            options=options,
            protected=True,
        )
    )


def _options(field: dict[str, Any], *, is_needed: bool) -> tuple[str, ...]:
    """Return the answers that are offered for a field; the person may write another one."""
    if field.get("type") == "boolean":
        return (_YES, _NO, _DECLINE)
    offered = [one_line(one[:80]) for one in _choices(field)]
    default = field.get("default")
    if not offered and isinstance(default, str | int | float):
        offered = [one_line(str(default)[:80])]
    ends = [_DECLINE] if is_needed else [_LEAVE, _DECLINE]
    return tuple(dict.fromkeys([*filter(None, offered[:_MOST_OPTIONS]), *ends]))


def _choices(field: dict[str, Any]) -> list[str]:
    """Return the values that a field may have; empty if it may have any."""
    items = lenient_json.mapping(field.get("items"))
    values = lenient_json.listing(field.get("enum")) or lenient_json.listing(items.get("enum"))
    for key in ("oneOf", "anyOf"):
        values = values or [
            lenient_json.mapping(one).get("const")
            for one in lenient_json.listing(field.get(key)) or lenient_json.listing(items.get(key))
        ]
    return [one for one in values if isinstance(one, str)]


def _value(said: str, field: dict[str, Any]) -> Value:
    """Return the person's words as a value of the field's type; None if they are none."""
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            return {_YES.lower(): True, _NO.lower(): False}.get(said.strip().lower())
        case "integer":
            return int(said) if said.strip().lstrip("-").isdecimal() and len(said) < 20 else None
        case "number":
            try:
                return float(said)
            except ValueError:
                return None
        case "array":
            parts = [part.strip() for part in said.replace(";", ",").split(",") if part.strip()]
            return [part for part in parts if not choices or part in choices]
        case _:
            if choices and said not in choices:
                return next((one for one in choices if one_line(one[:80]) == said), None)
            return said
