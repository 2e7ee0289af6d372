"""Reads the arguments of tool calls, which models and gateways write in many ways, and explains their errors.

Models write null for omitted arguments, lists and objects as strings of JSON, and all arguments as one such string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.text import nearest_words

_ERRORS_NAMED = 5
_VALUE_CHARS = 80
_MOST_ENCODED = 3


def parsed(arguments: str | None) -> dict[str, object]:
    """Return the arguments of a call by name, from the text that the model wrote.

    Raises:
        ToolProblem: the text is not JSON, or not an object.
    """
    text = (arguments or "").strip() or "{}"
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        where = (
            f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
            if isinstance(error, json.JSONDecodeError)
            else "nested too deeply or not readable"
        )
        raise ToolProblem(
            f"The arguments are not valid JSON ({where}). Nothing was run: send the call again with one complete, "
            "valid JSON object.",
            brief="bad JSON",
        ) from error
    if isinstance(value, str):
        value = _from_json(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolProblem(
            "The arguments must be one JSON object. Nothing was run: send the call again.",
            brief="bad JSON",
        )
    # Models write null for arguments that they mean to omit.
    values = cast("dict[str, object]", value)
    return {key: value for key, value in values.items() if value is not None}


def with_json_parsed(value: object, schema: Mapping[str, Any]) -> object:
    """Return the value with those strings parsed for which the schema expects a list or an object and no string."""
    kinds = _kinds(schema)
    if isinstance(value, str) and kinds & {"array", "object"} and "string" not in kinds:
        parsed = _from_json(value)
        if isinstance(parsed, dict | list):
            value = cast("object", parsed)
    if isinstance(value, dict):
        known = cast("Mapping[str, Any]", schema.get("properties", {}))
        fields = cast("dict[str, object]", value)
        return {key: with_json_parsed(one, known.get(key, {})) for key, one in fields.items()}
    if isinstance(value, list):
        items = cast("Mapping[str, Any]", schema.get("items", {}))
        return [with_json_parsed(one, items) for one in cast("list[object]", value)]
    return value


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema accepts, as far as it names them."""
    found: set[str] = set()
    for one in (schema, *schema.get("anyOf", ())):
        kind: object = one.get("type", ())
        found.update([kind] if isinstance(kind, str) else cast("Iterable[str]", kind))
    return found


def _from_json(text: str) -> object:
    """Return the value of JSON that may be encoded as a string several times; the text itself if it is not JSON."""
    value: object = text
    for _ in range(_MOST_ENCODED):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            break
    return value


def explained(error: ValidationError, properties: Iterable[object]) -> list[str]:
    """Explain the errors in the values, one sentence for each of the first problems; `properties` are the known names."""
    known = [str(name) for name in properties]
    return [_problem(detail, known) for detail in error.errors()[:_ERRORS_NAMED]]


def bad_arguments(tool: str, problems: Sequence[str]) -> ToolProblem:
    """Return the problem of a call of this tool with wrong arguments."""
    said = f"The arguments of {tool} are not valid; nothing was run. "
    return ToolProblem(said + " ".join(problems), brief="bad arguments")


def _problem(detail: ErrorDetails, known: list[str]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "missing":
        return f"`{field}` is required."
    if detail["type"] == "extra_forbidden":
        near = nearest_words(field, known, limit=1)
        hint = (
            f"; did you mean `{near[0]}`?" if near else f"; the parameters are {', '.join(known)}."
        )
        return f"`{field}` is not a parameter{hint}"
    expected = detail["msg"].removeprefix("Value error, ")
    expected = expected.replace("Input should be", "should be")
    got = json.dumps(detail["input"], ensure_ascii=False, default=str)
    if len(got) > _VALUE_CHARS:
        got = got[:_VALUE_CHARS] + "…"
    return encodable(f"`{field}` {expected}, not {got}.")


def encodable(text: str) -> str:
    """Return the text with lone surrogates (from odd file names or the model) escaped, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()
