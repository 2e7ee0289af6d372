"""Schemas of a server's tools, as a model may get them: bounded, without references, and only of parts that servers of models take.

A schema is a foreign value of any shape. A reference in it may lead to itself, and a few of them may unfold into millions of
parts; a pattern may take for ever; and one odd part makes a server of models refuse every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kimi_tui import lenient_json
from kimi_tui.foreign_text import clean, without_invisible

MOST_PARTS = 1_500
"""The most parts of a schema; what comes after them takes any value."""
_DEEPEST = 12
_MOST_WORDS = 1_000
_MOST_NAME = 128
_MOST_VALUES = 200
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NUMBERS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems"),
    }
)


def cleaned(text: str) -> str:
    """Return a foreign text as a model gets it: without terminal sequences and characters that nobody sees."""
    return without_invisible(clean(text))


def bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of type object that any model server takes, from one of any shape."""
    found = _Bounding(schema).part(schema, 0)
    found["type"] = "object"
    found.setdefault("properties", {})
    return found


class _Bounding:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._left = MOST_PARTS

    def part(self, value: object, depth: int) -> dict[str, Any]:
        """Return one part; an empty one, which takes any value, for what is no schema or too much."""
        self._left -= 1
        if not isinstance(value, dict) or depth > _DEEPEST or self._left < 0:
            return {}
        given = lenient_json.mapping(value)
        reference = given.get("$ref")
        if isinstance(reference, str):
            target = self._target(reference)
            given = {**target, **{key: one for key, one in given.items() if key != "$ref"}}
            if "$ref" in given:
                # A reference to a reference.
                return self.part(given, depth + 1)
        made: dict[str, Any] = {}
        for key, one in given.items():
            if (kept := self._kept(key, one, depth)) is not None:
                made[key] = kept
        required = lenient_json.listing(given.get("required"))
        named = [one for one in required if one in made.get("properties", {})]
        if named:
            made["required"] = named
        return made

    def _target(self, reference: str) -> dict[str, Any]:
        for start in ("$defs", "definitions"):
            if reference.startswith(f"#/{start}/"):
                defined = lenient_json.mapping(self._schema.get(start))
                return lenient_json.mapping(defined.get(reference.removeprefix(f"#/{start}/")))
        return {}

    def _kept(self, key: str, value: object, depth: int) -> object:
        """Return the value of a key as it stays; None to leave the key out."""
        match key:
            case "type":
                kinds = [value] if isinstance(value, str) else lenient_json.listing(value)
                known = [one for one in kinds if isinstance(one, str) and one in _TYPES]
                return (known if len(known) > 1 else known[0]) if known else None
            case "properties" if isinstance(value, dict):
                fields = lenient_json.mapping(value)
                return {
                    name: self.part(one, depth + 1)
                    for name, one in list(fields.items())[:_MOST_VALUES]
                    if name and len(name) <= _MOST_NAME and name.isprintable()
                }
            case "items" if isinstance(value, dict):
                return self.part(cast("object", value), depth + 1)
            case "anyOf" | "oneOf" | "allOf" if isinstance(value, list):
                found = [self.part(one, depth + 1) for one in lenient_json.listing(value)[:20]]
                return found or None
            case "additionalProperties":
                if isinstance(value, bool):
                    return value
                return (
                    self.part(cast("object", value), depth + 1) if isinstance(value, dict) else None
                )
            case "enum":
                values = [one for one in lenient_json.listing(value) if _is_plain(one)]
                return values[:_MOST_VALUES] or None
            case "const" | "default":
                return value if _is_plain(value) and value is not None else None
            case "description":
                return cleaned(value)[:_MOST_WORDS] if isinstance(value, str) else None
            case "format":
                return (
                    value
                    if isinstance(value, str) and value.isascii() and len(value) < 40
                    else None
                )
            case _ if key in _NUMBERS:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return value if is_number and abs(cast("float", value)) < 1e15 else None
            case _:
                return None


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_WORDS
    return value is None or isinstance(value, bool | int | float)
