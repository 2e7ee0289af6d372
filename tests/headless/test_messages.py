"""Lines of `--input-format stream-json` that are no messages: each is told what is wrong with it."""

from __future__ import annotations

import pytest
from support.cases import each

from kimi_tui.headless.messages import BadMessage, message_of


@each(
    "line, words",
    [
        (b"hello", "The line is not JSON: Expecting value"),
        (b"\0\x1b[31m", "The line is not JSON: Expecting value"),
        (b'{"type": "user", "text": "\xff"}', "it is not UTF-8"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[1]", "not a JSON object such as"),
        (b'{"type": "user", "text": " "}', 'needs a "text"'),
        (
            b'{"type": "user", "message": {"content": [{"type": "text", "text": "see"}, {"type": "image"}]}}',
            'has a part of the type "image": write an image or a document to a file',
        ),
        (b'{"type": "answer", "id": 3, "answer": "no"}', 'needs the "id"'),
        (b'{"type": "set_mode", "mode": "any"}', '"any" is not a mode'),
    ],
)
def test_what_is_no_message(line: bytes, words: str) -> None:
    with pytest.raises(BadMessage) as bad:
        message_of(line)
    assert words in str(bad.value)


def test_a_mark_of_the_encoding_is_no_part_of_the_first_line() -> None:
    assert message_of(b'\xef\xbb\xbf{"type": "user", "text": "hi"}').text == "hi"
