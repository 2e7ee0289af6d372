"""The JSON schema of a tool's parameters, in the plain form that every provider takes.

Some servers refuse references, unions beside a type or properties without one; titles only cost tokens.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel

_Node = dict[str, Any]


def tool_schema(model: type[BaseModel]) -> _Node:
    """The schema of `model` with references put in place, without titles, and with optional fields as plain types."""
    schema = model.model_json_schema()
    definitions = cast("_Node", schema.pop("$defs", {}))
    plain = _plain(schema, definitions)
    plain.pop("description", None)
    plain.setdefault("properties", {})
    return plain


def _plain(node: _Node, definitions: _Node) -> _Node:
    if "$ref" in node:
        target = cast("_Node", definitions[str(node["$ref"]).rsplit("/", 1)[-1]])
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node:
        kinds = [kind for kind in cast("list[_Node]", node["anyOf"]) if kind.get("type") != "null"]
        if len(kinds) == 1:
            node = {**kinds[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    result: _Node = {}
    for key, value in node.items():
        if key == "properties":
            properties = cast("dict[str, _Node]", value)
            result[key] = {name: _plain(child, definitions) for name, child in properties.items()}
        elif key == "items":
            result[key] = _plain(cast("_Node", value), definitions)
        elif key == "anyOf":
            result[key] = [_plain(kind, definitions) for kind in cast("list[_Node]", value)]
        elif not (key == "title" or (key == "default" and value is None)):
            result[key] = value
    return result
