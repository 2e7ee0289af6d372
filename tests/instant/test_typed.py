"""Keys typed before the app reads: text as far as it is certain, then everything in order, nothing lost and nothing twice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.instant.typed import TypedAhead

ANSWER = b"\x1b]11;rgb:fbfb/fafa/f7f7\x1b\\"


def typed(*pieces: bytes) -> TypedAhead:
    """Return the state after these pieces of input, read at 0, 1, 2 and so on."""
    ahead = TypedAhead()
    for at, piece in enumerate(pieces):
        ahead.take(piece, float(at))
    return ahead


@pytest.mark.parametrize(
    ("pieces", "text", "rest"),
    [
        ([b"hello"], "hello", b""),
        (["é 你好".encode()], "é 你好", b""),
        (["你".encode()[:2], "你".encode()[2:] + b"!"], "你!", b""),
        ([b"helo\x7f\x7flo"], "helo", b""),
        ([b"\x7fa"], "a", b""),
        (
            [b"a", "é".encode(), b"\x7f", b"b"],
            "aé",
            b"\x7fb",
        ),  # what Backspace takes is for the app to say
        ([b"hi\r", b"more"], "hi", b"\rmore"),
        ([b"hi", b"\x1b[D", b"x"], "hi", b"\x1b[Dx"),
        ([b"hi", b"\x1b", b"[D", b"x"], "hi", b"\x1b[Dx"),
        ([b"hi\x1b[200~pasted\r\x1b[201~"], "hi", b"\x1b[200~pasted\r\x1b[201~"),
        ([b"a\x03", b"b"], "a", b"\x03b"),
        ([b"a", b"\x04"], "a", b"\x04"),
        ([b"a\xffb"], "a", b"\xffb"),
        ([b"?"], "", b"?"),  # asks for the keys if nothing follows
        ([b"why?"], "why?", b""),
        ([b"/model sk-secret"], "/model", b" sk-secret"),  # may be an API key, which the app masks
        ([ANSWER + b"a"], "a", b""),
        ([b"a", ANSWER[:9], ANSWER[9:], b"b"], "ab", b""),
        ([b"a\x1b]1", b"0;x"], "a", b"\x1b]10;x"),  # another answer is for the app
        ([b"a\x1b"], "a", b"\x1b"),
        (["a\u200d".encode()], "a", "\u200d".encode()),
    ],
)
def test_text_is_certain_up_to_the_first_other_key(
    pieces: list[bytes], text: str, rest: bytes
) -> None:
    ahead = typed(*pieces).result()
    assert (ahead.text, b"".join(data for _, data in ahead.rest)) == (text, rest)


def test_the_terminals_colour_is_known_as_soon_as_it_answers() -> None:
    assert typed(b"a", ANSWER).colour == "rgb:fbfb/fafa/f7f7"
    assert typed(ANSWER.replace(b"\x1b\\", b"\x07")).colour == "rgb:fbfb/fafa/f7f7"
    assert not typed(ANSWER[:-2]).colour


def test_the_rest_has_the_times_at_which_it_was_read() -> None:
    ahead = typed(b"hi", b"\x1b", b"[D", b"x").result()
    assert ahead.rest == ((1.0, b"\x1b[D"), (3.0, b"x"))


def test_ctrl_c_is_counted_as_every_terminal_sends_it() -> None:
    assert typed(b"a\x03", b"\x03", b"\x1b[99;5u", b"\x1b[27;5;99~").n_quits == 4
    assert not typed(b"abc").n_quits


@given(
    st.lists(
        st.sampled_from([b"a", "é".encode(), b"\r", b"\x7f", b"\x1b[D", ANSWER, b"\xff", b" "]),
        max_size=12,
    ),
    st.data(),
)
def test_no_byte_is_lost_wherever_the_pieces_end(keys: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(keys)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    ends = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(ends) if a < b]
    one, other = typed(whole).result(), typed(*pieces).result()
    assert one.text == other.text
    assert b"".join(d for _, d in one.rest) == b"".join(d for _, d in other.rest)
    if not {b"\x7f", ANSWER}.intersection(keys):
        assert one.text.encode() + b"".join(d for _, d in one.rest) == whole
