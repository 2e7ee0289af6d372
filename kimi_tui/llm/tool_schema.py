"""JSON schemas of tools: one plain form that every provider takes, and the flavours that single dialects want.

Some servers refuse references, a type beside a union, tuples or `const`, and titles only cost tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kimi_tui import lenient_json

if TYPE_CHECKING:
    from kimi_tui.llm.dialects import Dialect
    from kimi_tui.llm.provider import ToolSpec

_MAX_DEPTH = 40


def sent_tools(tools: Sequence[ToolSpec], dialect: Dialect) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": plain_schema(tool.parameters, flavour=dialect.schema),
            },
        }
        for tool in tools
    ]


def plain_schema(schema: Mapping[str, Any], *, flavour: str = "plain") -> dict[str, Any]:
    """A schema of type object without references and titles, and with optional fields as plain types.

    Args:
        schema: of any origin; what is no schema in it is passed on as it is.
        flavour: see `Dialect.schema`.
    """
    definitions = lenient_json.mapping(schema.get("$defs"))
    body = {key: value for key, value in schema.items() if key not in {"$defs", "$schema", "title"}}
    plain = lenient_json.mapping(_plain(body, definitions, flavour, 0, is_property=False))
    plain["type"] = "object"
    plain.setdefault("properties", {})
    return plain


def _plain(
    value: Any, definitions: dict[str, Any], flavour: str, depth: int, *, is_property: bool
) -> Any:
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return {} if isinstance(value, dict) else value

    def plain(child: Any) -> Any:
        return _plain(child, definitions, flavour, depth + 1, is_property=True)

    schema = dict(cast("dict[str, Any]", value))
    reference = lenient_json.text(schema.pop("$ref", None))
    if reference.startswith("#/$defs/"):
        target = lenient_json.mapping(definitions.get(reference.removeprefix("#/$defs/")))
        schema = {**target, **schema}
        return _plain(schema, definitions, flavour, depth + 1, is_property=is_property)
    choices = lenient_json.listing(schema.get("anyOf"))
    filled = [one for one in choices if lenient_json.mapping(one).get("type") != "null"]
    if len(filled) == 1:
        # An optional field: what is left out needs no null.
        del schema["anyOf"]
        schema = {**lenient_json.mapping(filled[0]), **schema}
        if schema.get("default", ...) is None:
            del schema["default"]
        return _plain(schema, definitions, flavour, depth + 1, is_property=is_property)
    schema.pop("title", None)
    pattern = lenient_json.text(schema.get("pattern"))
    if pattern and not (pattern.startswith("^") and pattern.endswith("$")):
        del schema["pattern"]  # llama.cpp refuses it, and to the others it is a hint at best
    for key in ("items", "additionalProperties", "not"):
        if key in schema:
            schema[key] = plain(schema[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if key in schema:
            schema[key] = [plain(one) for one in lenient_json.listing(schema[key])]
    if "properties" in schema:
        schema["properties"] = {
            name: plain(one) for name, one in lenient_json.mapping(schema["properties"]).items()
        }
    if flavour == "moonshot":
        _to_moonshot(schema, is_property=is_property)
    return schema


def _to_moonshot(schema: dict[str, Any], *, is_property: bool) -> None:
    """Rewrite a schema for Moonshot: no type beside `anyOf`, a type elsewhere, no tuples or `const`, known required names only."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "anyOf" in schema:
        kind = schema.pop("type", None)
        for one in lenient_json.listing(schema["anyOf"]):
            if kind is not None and "type" not in one:
                one["type"] = kind
    if "prefixItems" in schema:
        members = lenient_json.listing(schema.pop("prefixItems"))
        schema["items"] = members[0] if len(members) == 1 else {"anyOf": members}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if is_property and "type" not in schema and "anyOf" not in schema and "allOf" not in schema:
        schema["type"] = _type_of(schema)
    if "required" in schema:
        known = lenient_json.mapping(schema.get("properties"))
        required = [name for name in lenient_json.listing(schema["required"]) if name in known]
        schema["required"] = required
        if not required:
            del schema["required"]


def _type_of(schema: Mapping[str, Any]) -> str:
    values = lenient_json.listing(schema.get("enum"))
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
