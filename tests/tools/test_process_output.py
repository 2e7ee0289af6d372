from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.foreign_text import clean
from kimi_tui.tools.process import HEAD_CHARS, LIVE_CHARS, TAIL_CHARS, Capture, LiveText

pieces = st.lists(st.binary(max_size=40), max_size=20)


@given(pieces)
def test_short_output_is_kept_whole(chunks: list[bytes]) -> None:
    capture = Capture()
    for chunk in chunks:
        capture.feed(chunk)
    data = b"".join(chunks).replace(b"\r", b"")
    whole = Capture()
    whole.feed(b"".join(chunks))
    assert capture.text().text == whole.text().text
    if b"\r" not in b"".join(chunks):
        assert capture.text().text == clean(data.decode("utf-8", "replace"))
    assert not capture.text().shortened


@given(st.integers(200, 70_000), st.integers(2_000, 20_000))
def test_long_output_keeps_its_ends_in_bounded_memory(size: int, n_lines: int) -> None:
    data = b"".join(b"line %06d of much output \xc3\xa9\n" % n for n in range(n_lines))
    capture = Capture()
    for start in range(0, len(data), size):
        capture.feed(data[start : start + size])
    shown = capture.text()
    assert shown.shortened
    assert len(shown.text) <= HEAD_CHARS + TAIL_CHARS + 100
    head, _, tail = shown.text.partition("\n… ")
    left_out, _, tail = tail.partition(" bytes left out …\n")
    assert data.decode().startswith(head)
    assert data.decode().endswith(tail)
    assert len(head) > HEAD_CHARS - 100
    assert len(tail) > TAIL_CHARS - 100
    assert int(left_out.replace(",", "")) == len(data) - len(head.encode()) - len(tail.encode())
    assert sum(map(len, capture._tail)) <= 4 * TAIL_CHARS + size


def test_one_endless_line() -> None:
    capture = Capture()
    for _ in range(100):
        capture.feed(b"x" * 65_536)
    text = capture.text().text
    assert len(text) < 10_000
    assert "more characters" in text


@given(st.text(max_size=200), st.lists(st.integers(1, 7), min_size=1))
def test_live_pieces_join_to_the_whole(text: str, sizes: list[int]) -> None:
    data = text.encode()
    live = LiveText()
    shown, position, turn = "", 0, 0
    while position < len(data):
        live.feed(data[position : position + sizes[turn % len(sizes)]])
        position, turn = position + sizes[turn % len(sizes)], turn + 1
        shown += live.take()
    assert shown + live.take(final=True) == text


def test_a_flood_shows_its_newest_lines() -> None:
    live = LiveText()
    for n in range(10_000):
        live.feed(b"line %d\n" % n)
    shown = live.take()
    assert len(shown) < LIVE_CHARS + 100
    assert shown.startswith("\n… ")
    assert shown.endswith("line 9998\nline 9999\n")
    first = shown.split("\n")[2]
    assert first.startswith("line ")
    live.feed(b"after\n")
    assert live.take() == "after\n"


def test_only_the_last_state_of_a_line_that_was_written_over_is_kept() -> None:
    capture = Capture()
    capture.feed(b"10 %\r50 %\r100 %\ndone\r\n\r\rtwice\r\r\n" + b"a\r" + b"x" * 60_000)
    assert capture.text().text.startswith("100 %\ndone\ntwice\nxxx")
