"""Tools as they are sent: JSON schemas in the flavour a server takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from kimi_tui.llm import loose
from kimi_tui.llm.dialects import Dialect
from kimi_tui.llm.provider import ToolSpec

_MAX_DEPTH = 40


def tools_sent(tools: Sequence[ToolSpec], dialect: Dialect) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": parameters_sent(tool.parameters, dialect),
            },
        }
        for tool in tools
    ]


def parameters_sent(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """One schema: of type object, with its references put in place, in this dialect's flavour."""
    definitions = loose.mapping(schema.get("$defs"))
    body = {key: value for key, value in schema.items() if key not in {"$defs", "$schema", "title"}}
    sent = loose.mapping(_plain(body, definitions, dialect, 0, is_property=False))
    sent["type"] = "object"
    sent.setdefault("properties", {})
    return sent


def _plain(
    value: Any, definitions: dict[str, Any], dialect: Dialect, depth: int, *, is_property: bool
) -> Any:
    """A schema without references and titles; anything that is not a schema comes back as it is."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return {} if isinstance(value, dict) else value
    schema = dict(cast("dict[str, Any]", value))
    reference = loose.text(schema.pop("$ref", None))
    if reference.startswith("#/$defs/"):
        target = loose.mapping(definitions.get(reference.removeprefix("#/$defs/")))
        schema = {**target, **schema}
        return _plain(schema, definitions, dialect, depth + 1, is_property=is_property)
    schema.pop("title", None)
    pattern = loose.text(schema.get("pattern"))
    if pattern and not (pattern.startswith("^") and pattern.endswith("$")):
        del schema["pattern"]  # llama.cpp refuses it, and to the others it is a hint at best
    for key in ("items", "additionalProperties", "not"):
        if key in schema:
            schema[key] = _plain(schema[key], definitions, dialect, depth + 1, is_property=True)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if key in schema:
            schema[key] = [
                _plain(one, definitions, dialect, depth + 1, is_property=True)
                for one in loose.listing(schema[key])
            ]
    if "properties" in schema:
        schema["properties"] = {
            name: _plain(one, definitions, dialect, depth + 1, is_property=True)
            for name, one in loose.mapping(schema["properties"]).items()
        }
    if dialect.schema == "moonshot":
        _moonshot(schema, is_property=is_property)
    return schema


def _moonshot(schema: dict[str, Any], *, is_property: bool) -> None:
    """No type beside `anyOf`, a type everywhere else, no tuples, no `const`, and only known names required."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "anyOf" in schema:
        kind = schema.pop("type", None)
        for one in loose.listing(schema["anyOf"]):
            if kind is not None and "type" not in one:
                one["type"] = kind
    if "prefixItems" in schema:
        members = loose.listing(schema.pop("prefixItems"))
        schema["items"] = members[0] if len(members) == 1 else {"anyOf": members}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if is_property and "type" not in schema and "anyOf" not in schema and "allOf" not in schema:
        schema["type"] = _type_of(schema)
    if "required" in schema:
        known = loose.mapping(schema.get("properties"))
        required = [name for name in loose.listing(schema["required"]) if name in known]
        schema["required"] = required
        if not required:
            del schema["required"]


def _type_of(schema: Mapping[str, Any]) -> str:
    values = loose.listing(schema.get("enum"))
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    if values and all(isinstance(value, bool) for value in values):
        return "boolean"
    if values and all(isinstance(value, int) for value in values):
        return "integer"
    if values and all(isinstance(value, int | float) for value in values):
        return "number"
    return "string"
