"""JSON Lines: cut at line feeds only, read leniently, written so that one record is one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.session.jsonl import CHUNK_BYTES, encode, lines, parse


def read_lines(data: bytes, start: int = 0, step: int = 1 << 20) -> list[tuple[int, bytes, bool]]:
    found = lines(lambda size, offset: data[offset : offset + min(size, step)], start)
    return [(line.offset, line.data, line.complete) for line in found]


@given(st.binary(max_size=300), st.integers(1, 7))
def test_lines_are_the_bytes_between_line_feeds(data: bytes, step: int) -> None:
    found = read_lines(data, step=step)
    assert b"".join(line + b"\n" * complete for _, line, complete in found) == data
    assert [offset for offset, _, _ in found] == [
        sum(len(line) + 1 for _, line, _ in found[:place]) for place in range(len(found))
    ]
    assert all(complete for _, _, complete in found[:-1])


def test_a_line_longer_than_a_chunk_is_one_line() -> None:
    long = b"x" * (2 * CHUNK_BYTES + 5)
    assert [len(line) for _, line, _ in read_lines(long + b"\nshort\n")] == [len(long), 5]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b", "\r"])
def test_other_line_ends_are_data(separator: str) -> None:
    record = {"role": "user", "content": f"a{separator}b"}
    written = encode(record) * 2
    assert [parse(line) for _, line, _ in read_lines(written)] == [record, record]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_every_record_is_one_line_of_strict_json(record: dict[str, object]) -> None:
    written = encode(record)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(written, parse_constant=refuse)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=4))
def test_what_is_written_is_read(record: dict[str, object]) -> None:
    assert parse(encode(record)[:-1]) == record


def test_half_a_surrogate_pair_survives() -> None:
    record = {"role": "user", "content": "a\ud800b"}
    assert parse(encode(record)[:-1]) == record


def test_what_json_cannot_hold_becomes_null() -> None:
    record = {"nan": float("nan"), "endless": float("-inf"), "huge": 10**5000, "list": [1e400]}
    assert parse(encode(record)[:-1]) == {
        "nan": None,
        "endless": None,
        "huge": None,
        "list": [None],
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an object"),
        (b"17", "not an object"),
        (b"\0" * 9, "only NUL bytes"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "not JSON"),
    ],
)
def test_a_bad_line_has_a_reason(line: bytes, reason: str) -> None:
    assert parse(line) == reason


def test_deep_nesting_is_a_reason_even_where_only_the_lenient_parser_sees_it() -> None:
    assert isinstance(parse(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), str)


@pytest.mark.parametrize("line", [b"", b"  ", b"\t\r"])
def test_a_blank_line_is_nothing(line: bytes) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"b\x01c"}',
        b'{"a":"\xff\xfe"}',
        b'\xef\xbb\xbf{"a":1}',
        b'\0\0\0\0{"a":1}',
        b'{"a":NaN}',
        b'{"a":1}\r',
    ],
)
def test_lenient_reading(line: bytes) -> None:
    assert isinstance(parse(line), dict)
