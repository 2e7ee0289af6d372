"""The text of keys that no app has read."""

from __future__ import annotations

import pytest

from kimi_tui.instant.keep import typed_text

KEY = "sk-" + "abcdefgh12345678" * 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("hé 你".encode(), "hé 你"),
        (b"fix it\rand more", "fix it\nand more"),
        (b"sent\r", "sent"),
        (b"ab\x7f\x7f\x7fc", "c"),
        (b"\x1b[H\x1b[1;5Dhi\x1bOP\x1b", "hi"),
        (b"\x1b[200~pasted\rtext\x1b[201~", "pasted\ntext"),
        (b"a\x1b[13;2ub", "a\nb"),
        (b"\x03\x03\x03", ""),
        (b"\x1b]11;rgb:0/0/0\x1b\\x", "x"),
        (b"\xffx\xe4", "\ufffdx\ufffd"),
        (f"/model {KEY}".encode(), "/model "),
        (b"", ""),
    ],
)
def test_what_was_typed_is_told_from_its_bytes(data: bytes, text: str) -> None:
    assert typed_text(data) == text


@pytest.mark.parametrize("begun", ["\x1b", "\x1b[", "\x1b]11;", "\x1b[13;", "\x1b[1 "])
def test_no_input_takes_long(begun: str) -> None:
    assert typed_text((begun * 100_000).encode()) is not None
    assert typed_text((begun + "1;" * 200_000).encode()) is not None
