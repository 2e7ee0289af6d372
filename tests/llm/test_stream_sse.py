from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.llm import stream
from kimi_tui.llm.stream import EventTooLarge, SSEDecoder, SSEvent


def decoded(chunks: list[bytes]) -> list[SSEvent]:
    decoder = SSEDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [event for event in [*events, *decoder.finish()] if isinstance(event, SSEvent)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.lists(
        st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), min_size=1), max_size=6
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_events_are_the_same_wherever_the_stream_is_cut(
    texts: list[str], newline: str, places: list[int]
) -> None:
    written = "".join(f"data: {json.dumps(text)}{newline}{newline}" for text in texts)
    events = decoded(cut(written.encode(), places))
    assert [json.loads(event.data) for event in events] == texts


def test_everything_that_is_no_data_is_passed_over() -> None:
    stream = (
        b"\xef\xbb\xbf: PROCESSING\n\nretry: 100\n\nid: 7\ndata: 1\n\nevent: ping\n\ndata:2\n\n"
    )
    assert decoded([stream]) == [SSEvent("", b"1"), SSEvent("", b"2")]


def test_errors_are_seen_in_both_of_their_forms() -> None:
    stream = b'event: error\ndata: {"a":1}\n\nerror: {"b":2}\n\n'
    expected = [SSEvent("error", b'{"a":1}'), SSEvent("error", b'{"b":2}')]
    assert decoded([stream]) == expected
    # The blank behind the colon may be missing.
    assert decoded([stream.replace(b": ", b":")]) == expected


def test_lines_of_one_event_are_joined_and_the_last_event_needs_no_blank_line() -> None:
    assert decoded([b"data: a\ndata: b\n\ndata: c"]) == [SSEvent("", b"a\nb"), SSEvent("", b"c")]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        # A line of an event that has begun, whose blank line comes with the next event.
        ([b"data: a\n", b"\ndata: b\n\n"], [b"a", b"b"]),
        ([b"data: a\n", b"data: b\n\n"], [b"a\nb"]),
        # Line ends of two kinds.
        ([b"data: a\r\rdata: b\n\ndata: c\r\n\r\n"], [b"a", b"b", b"c"]),
    ],
)
def test_what_has_begun_before_is_part_of_its_own_event(
    chunks: list[bytes], expected: list[bytes]
) -> None:
    assert [event.data for event in decoded(chunks)] == expected


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", 1_000)
    decoder = SSEDecoder()
    for _ in range(50):  # comments are forgotten, however many
        decoder.feed(b": " + b"x" * 90 + b"\n")
    decoder.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLarge):
        decoder.feed(b"x" * 200)
