"""The JSON schemas of answers: what fits, what is said of what does not, and which schemas are refused before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.config.settings import ConfigError
from kimi_tui.headless.schema import Schema, answer_of

NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
}


@each(
    "schema, fits, faulty",
    [
        (True, [1, None], []),
        ({}, [1, "a"], []),
        ({"type": "integer"}, [1, 2.0, -3], [1.5, True, "1", None]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"type": "boolean"}, [True], [1, 0]),
        ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b"]),
        ({"const": {"a": [1]}}, [{"a": [1]}], [{"a": [2]}]),
        ({"required": ["a"]}, [{"a": None}, [], 3], [{}, {"b": 1}]),
        ({"properties": {"a": {"type": "string"}}}, [{}, {"a": "", "b": 1}], [{"a": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
        (
            {"items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            [[1]],
            [[], [1, 2, 3], ["a"]],
        ),
        ({"prefixItems": [{"type": "string"}], "items": False}, [["a"], []], [[1], ["a", 1]]),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1], [{"a": 1}, {"a": 1}]]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "äöü", 7], ["a", "abcd"]),
        ({"pattern": "^a+$"}, ["aa", 3], ["", "ab"]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [0, 3]),
        ({"maximum": 1, "exclusiveMinimum": 0}, [1, 0.5], [0, 2]),
        ({"multipleOf": 0.1}, [0.3, 1], [0.25]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 6], [3]),
        ({"oneOf": [{"type": "number"}, {"minimum": 5}]}, [3, "a"], [6]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        (
            NODE,
            [{"next": None}, {"next": {"next": None}}],
            [{}, {"next": 1}, {"next": {"next": 2}}],
        ),
    ],
)
def test_what_fits(schema: object, fits: list[Any], faulty: list[Any]) -> None:
    checked = Schema(schema)
    assert [one for one in fits if checked.faults(one)] == []
    assert [one for one in faulty if not checked.faults(one)] == []


def test_a_fault_names_its_place() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {"files": {"items": {"required": ["line"]}}},
            "required": ["files", "ok"],
        }
    )
    assert schema.faults({"files": [{"line": 1}, {}]}) == [
        '$ lacks "ok"',
        '$.files[1] lacks "line"',
    ]


@each(
    "schema, words",
    [
        ([], "must be an object, true or false"),
        ({"type": "text"}, 'has the type "text"'),
        ({"type": {}}, "has the type {}"),
        ({"type": ["string", []]}, "has the type []"),
        ({"patternProperties": {}}, '"patternProperties", which is not supported'),
        ({"properties": {"a": {"if": {}}}}, '#/properties/a has "if"'),
        ({"required": "a"}, '"required" has the wrong form'),
        ({"minimum": "1"}, '"minimum" is not a number'),
        ({"minLength": None}, '"minLength" is not a number'),
        ({"multipleOf": 0}, "is not above 0"),
        ({"pattern": "(?=a)"}, "is invalid"),
        ({"anyOf": {}}, '"anyOf" is not a list'),
        ({"properties": []}, '"properties" has the wrong form'),
        ({"$ref": "http://example.com"}, "can only name a part of this schema"),
        ({"$ref": "#/$defs/no"}, 'there is no "#/$defs/no"'),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: object, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Schema(schema)
    assert words in str(refused.value)


def test_a_file_is_named(tmp_path: Path) -> None:
    for text, words in (
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("7", "must be an object"),
    ):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            Schema.read(str(tmp_path / "s.json"))


@each("text", ['{"a": 1}', ' {"a": 1}\n', '```json\n{"a": 1}\n```', '```\n{"a": 1}```'])
def test_an_answer_may_stand_in_a_code_block(text: str) -> None:
    assert answer_of(text) == {"a": 1}


@each("text", ["", "Here: {}", "NaN", "[" * 100_000, "```json\n```"])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError):
        answer_of(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=JSON)
def test_a_value_is_its_own_constant(value: Any) -> None:
    value = json.loads(json.dumps(value))
    assert Schema({"const": value, "enum": [value]}).faults(value) == []
