"""JSON schemas of answers: reads one, says whether it can be checked here, and finds what is wrong with a value.

The keywords are those that models are asked for in practice (draft 2020-12): types, enumerations, objects, lists, numbers,
texts, combinations, and references within the schema. A keyword that changes what is valid and is not known here is an error
before anything is sent, so that no answer passes unchecked; those that only describe are skipped. Patterns are run by the
engine of pydantic-core, which never backtracks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from kimi_tui.app_paths import reason_of
from kimi_tui.config.settings import ConfigError

_MOST_BYTES = 1_000_000
_MOST_FAULTS = 5
_DEEPEST = 100
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}
_DESCRIBE = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "contentMediaType",
        "contentEncoding",
    ]
)
_CHECKED = frozenset(
    [
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "$ref",
        "minProperties",
        "maxProperties",
    ]
)
_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_OF_ONE = ("items", "additionalProperties", "not")
_NAMED = ("properties", "$defs", "definitions")
Json = dict[str, Any]


class Schema:
    """A schema that was checked.

    Args:
        tree: the schema.

    Raises:
        ConfigError: it is no schema, or has a keyword that cannot be checked; the message ends a sentence.
    """

    def __init__(self, tree: object) -> None:
        self._root = tree
        for place, part in _parts(tree, "#", 0):
            self._check_part(place, part)
        self.text = json.dumps(tree, ensure_ascii=False, indent=1)

    @classmethod
    def read(cls, file: str) -> Schema:
        """Read a schema. It reads a file, so call it in a thread.

        Raises:
            ConfigError: the file cannot be read, or is no schema that can be checked.
        """
        try:
            data = Path(file).expanduser().read_bytes()
            if len(data) > _MOST_BYTES:
                raise ConfigError(f'--json-schema: "{file}" is longer than 1 MB')
            return cls(json.loads(data))
        except OSError as error:
            raise ConfigError(
                f'--json-schema: "{file}" cannot be read: {reason_of(error, named_in_text=file)}'
            ) from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f'--json-schema: "{file}" is not JSON: {error}') from error
        except ConfigError as error:
            raise ConfigError(f'--json-schema: "{file}": {error}') from error

    def fitted(self, answer: str) -> tuple[tuple[object, ...], list[str]]:
        """Return the value of an answer in a tuple of one, and what is wrong with it; an empty tuple if it is no JSON."""
        try:
            value = answer_of(answer)
        except ValueError as error:
            return (), [f"it is not JSON: {error}"]
        return (value,), self.faults(value)

    def faults(self, value: object) -> list[str]:
        """Return what is wrong with a value, each with its place, at most a few; nothing if it fits."""
        found: list[str] = []
        for fault in self._faults(self._root, value, "$", 0):
            found.append(fault)
            if len(found) == _MOST_FAULTS:
                break
        return found

    def _check_part(self, place: str, part: object) -> None:
        if isinstance(part, bool):
            return
        if not isinstance(part, dict):
            raise ConfigError(f"{place} must be an object, true or false")
        schema = cast("Json", part)
        if unknown := sorted(set(schema) - _DESCRIBE - _CHECKED):
            raise ConfigError(f'{place} has "{unknown[0]}", which is not supported')
        kinds = schema.get("type", [])
        for kind in cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]:
            if not isinstance(kind, str) or kind not in _TYPES:
                raise ConfigError(f"{place} has the type {json.dumps(kind)}, which does not exist")
        for name, of in (
            ("required", list),
            ("enum", list),
            ("properties", dict),
            ("pattern", str),
        ):
            if name in schema and not isinstance(schema[name], of):
                raise ConfigError(f'{place}: "{name}" has the wrong form')
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            if name in schema and not _is_number(schema[name]):
                raise ConfigError(f'{place}: "{name}" is not a number')
        for name in schema:
            if name[:3] in ("min", "max") and not _is_number(schema[name]):
                raise ConfigError(f'{place}: "{name}" is not a number')
        if "multipleOf" in schema and schema["multipleOf"] <= 0:
            raise ConfigError(f'{place}: "multipleOf" is not above 0')
        if "pattern" in schema:
            try:
                _pattern(schema["pattern"])
            except Exception as error:
                raise ConfigError(
                    f'{place}: the pattern "{schema["pattern"]}" is invalid'
                ) from error
        if "$ref" in schema:
            self._target(place, schema["$ref"])

    def _target(self, place: str, reference: object) -> object:
        found = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ConfigError(
                f'{place}: "$ref" can only name a part of this schema, as #/$defs/NAME'
            )
        for written in reference[1:].split("/")[1:]:
            name = written.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise ConfigError(f'{place}: there is no "{reference}"')
            found = cast("Json", found)[name]
        return cast("object", found)

    def _faults(self, part: object, value: object, at: str, depth: int) -> Iterator[str]:
        if part is True:
            return
        if part is False:
            yield f"{at} is not allowed"
            return
        if depth > _DEEPEST:
            yield f"{at} is nested too deeply"
            return
        schema = cast("Json", part)
        kinds = schema.get("type")
        if kinds is not None:
            names = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
            if not any(_is_of(name, value) for name in names):
                yield f"{at} is not {' or '.join(names)}"
                return
        if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
            yield f"{at} is none of {json.dumps(schema['enum'], ensure_ascii=False)[:200]}"
        if "const" in schema and not _same(value, schema["const"]):
            yield f"{at} is not {json.dumps(schema['const'], ensure_ascii=False)[:200]}"
        if "$ref" in schema:
            yield from self._faults(self._target(at, schema["$ref"]), value, at, depth + 1)
        yield from self._combined(schema, value, at, depth + 1)
        if isinstance(value, dict):
            yield from self._of_object(schema, cast("Json", value), at, depth + 1)
        elif isinstance(value, list):
            yield from self._of_list(schema, cast("list[object]", value), at, depth + 1)
        elif isinstance(value, str):
            yield from _of_text(schema, value, at)
        elif _is_number(value):
            yield from _of_number(schema, cast("float", value), at)

    def _fits(self, part: object, value: object, depth: int) -> bool:
        return next(self._faults(part, value, "", depth), None) is None

    def _combined(self, schema: Json, value: object, at: str, depth: int) -> Iterator[str]:
        for part in schema.get("allOf", ()):
            yield from self._faults(part, value, at, depth)
        if "anyOf" in schema and not any(self._fits(one, value, depth) for one in schema["anyOf"]):
            yield f"{at} fits none of the forms of anyOf"
        if "oneOf" in schema:
            count = sum(self._fits(one, value, depth) for one in schema["oneOf"])
            if count != 1:
                yield f"{at} fits {count} forms of oneOf, and has to fit exactly one"
        if "not" in schema and self._fits(schema["not"], value, depth):
            yield f'{at} matches a schema that "not" excludes'

    def _of_object(self, schema: Json, value: Json, at: str, depth: int) -> Iterator[str]:
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{at} lacks {json.dumps(name)}"
        known: Json = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, one in value.items():
            if name not in known and others is False:
                yield f"{at} has {json.dumps(name)}, which is not allowed"
            else:
                part = known.get(name, others)
                yield from self._faults(part, one, f"{at}.{name}", depth)
        if len(value) < schema.get("minProperties", 0):
            yield f"{at} has fewer than {schema['minProperties']} properties"
        if len(value) > schema.get("maxProperties", math.inf):
            yield f"{at} has more than {schema['maxProperties']} properties"

    def _of_list(self, schema: Json, value: Sequence[object], at: str, depth: int) -> Iterator[str]:
        first = schema.get("prefixItems", [])
        for place, one in enumerate(value):
            part = first[place] if place < len(first) else schema.get("items", True)
            yield from self._faults(part, one, f"{at}[{place}]", depth)
        if len(value) < schema.get("minItems", 0):
            yield f"{at} has fewer than {schema['minItems']} items"
        if len(value) > schema.get("maxItems", math.inf):
            yield f"{at} has more than {schema['maxItems']} items"
        if schema.get("uniqueItems") is True:
            seen = {json.dumps(one, sort_keys=True) for one in value}
            if len(seen) < len(value):
                yield f"{at} has the same item twice"


def answer_of(text: str) -> object:
    """Return the JSON value of an answer, which may stand in a code block.

    Raises:
        ValueError: it is no JSON; the text says why.
    """
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text.partition("\n")[2].removesuffix("```").strip()

    def refuse(name: str) -> object:
        raise ValueError(f"{name} is not a JSON value")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _parts(part: object, place: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield every schema within a schema, itself first, with its place."""
    yield place, part
    if depth > _DEEPEST:
        raise ConfigError("it is nested too deeply")
    if not isinstance(part, dict):
        return
    schema = cast("Json", part)
    for name in _OF_ONE:
        if name in schema:
            yield from _parts(schema[name], f"{place}/{name}", depth + 1)
    for name in _OF_SCHEMAS:
        if name in schema:
            if not isinstance(schema[name], list):
                raise ConfigError(f'{place}: "{name}" is not a list')
            for number, one in enumerate(cast("list[object]", schema[name])):
                yield from _parts(one, f"{place}/{name}/{number}", depth + 1)
    for name in _NAMED:
        if name in schema:
            if not isinstance(schema[name], dict):
                raise ConfigError(f'{place}: "{name}" is not an object')
            for key, one in cast("Json", schema[name]).items():
                yield from _parts(one, f"{place}/{name}/{key}", depth + 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_of(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _same(one: object, other: object) -> bool:
    # In Python true equals 1.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True) or (
        _is_number(one) and _is_number(other) and one == other
    )


def _of_text(schema: Json, value: str, at: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{at} has fewer than {schema['minLength']} characters"
    if len(value) > schema.get("maxLength", math.inf):
        yield f"{at} has more than {schema['maxLength']} characters"
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield f"{at} does not match the pattern {schema['pattern']}"


def _of_number(schema: Json, value: float, at: str) -> Iterator[str]:
    if value < schema.get("minimum", -math.inf):
        yield f"{at} is less than {schema['minimum']}"
    if value > schema.get("maximum", math.inf):
        yield f"{at} is more than {schema['maximum']}"
    if value <= schema.get("exclusiveMinimum", -math.inf):
        yield f"{at} is not more than {schema['exclusiveMinimum']}"
    if value >= schema.get("exclusiveMaximum", math.inf):
        yield f"{at} is not less than {schema['exclusiveMaximum']}"
    if "multipleOf" in schema:
        quotient = value / schema["multipleOf"]
        if abs(quotient - round(quotient)) > 1e-9:
            yield f"{at} is not a multiple of {schema['multipleOf']}"


@cache
def _pattern(pattern: str) -> Any:
    from pydantic_core import SchemaValidator, core_schema

    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def _matches(pattern: str, value: str) -> bool:
    return _pattern(pattern).isinstance_python(value)
