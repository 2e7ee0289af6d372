"""What the terminal sends becomes text that cannot end the program, and pastes that press no keys."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from textual import events

from kimi_tui.tui.terminal_input import (
    FIRST_ANSWER_S,
    LONGEST_ANSWER_S,
    PASTE_END,
    PASTE_START,
    PATIENCE_S,
    Arrivals,
    BackgroundAnswers,
    GraphicsAnswerFilter,
    Incoming,
    KeyParser,
    Outgoing,
)


def messages(*pieces: bytes) -> list[object]:
    """What Textual makes of bytes that come in these pieces."""
    incoming, parser = Incoming(BackgroundAnswers(), list[bool]().append), KeyParser()
    texts = [text for piece in pieces if (text := incoming.text(piece))]
    return [message for text in texts for message in parser.feed(text)]


def pasted(text: str) -> bytes:
    """What a terminal sends for a paste."""
    return (PASTE_START + text + PASTE_END).encode()


def said(found: list[object]) -> list[str]:
    """Pastes whole, keys by name."""
    return [
        message.text if isinstance(message, events.Paste) else message.key
        for message in found
        if isinstance(message, events.Paste | events.Key)
    ]


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_a_coloured_log_is_one_paste_and_presses_no_key(size: int) -> None:
    data = b"a" + pasted("\x1b[31mred\x1b[0m\rnext\x1b]0;t\x07 \x1b\rend") + b"z"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    keys_and_paste = said(messages(*pieces))
    assert [keys_and_paste[0], keys_and_paste[-1]] == ["a", "z"]
    assert len(keys_and_paste) == 3
    assert keys_and_paste[1].startswith("red\nnext")


def test_a_paste_without_sequences_is_left_as_it_is() -> None:
    assert said(messages(pasted("one\r\ttwo\u200b"), pasted("x"))) == ["one\r\ttwo\u200b", "x"]


@pytest.mark.parametrize(
    "answer",
    [
        "]52;c;cm0gLXJmIH4K\x07",
        "]52;c;cm0K\x1b\\",
        "P1$r0m\r\x1b\\",
        "]l/quit\r\x1b\\",
        "]0;/quit\r\x07",
        "_x\r\x1b\\",
        "X/quit\r\x1b\\",
        "^/quit\r\x1b\\",
    ],
)
def test_answers_that_were_not_asked_for_press_no_keys(answer: str) -> None:
    assert said(messages(f"a\x1b{answer}b".encode())) == ["a", "b"]
    # One alone is no end of what is typed.
    assert said(messages(f"\x1b{answer}".encode(), b"b")) == ["b"]


def test_bytes_that_are_no_text_are_no_end() -> None:
    assert said(messages(b"\xe9A", b"\xff", b"b"))[-1] == "b"


def test_esc_and_a_letter_close_behind_it_are_two_keys_where_vim_is_used() -> None:
    parser = KeyParser()
    parser.splits_alt = True
    data = "\x1bd\x1b0\x1bG\x1b$\x1bb\x1b[A\x1b\r"
    assert said(list(parser.feed(data))) == [
        *("escape", "d", "escape", "0", "escape", "G", "escape", "dollar_sign", "escape", "b"),
        *("up", "alt+enter"),
    ]


@given(st.binary(max_size=80), st.integers(1, 9))
def test_outside_a_paste_all_is_handed_on_at_once(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    incoming = Incoming(BackgroundAnswers(), list[bool]().append)
    text = "".join(incoming.text(piece) for piece in pieces)
    if PASTE_START not in text:
        decoded = data.decode(errors="replace")
        assert decoded.startswith(text)
        rest = decoded[len(text) :]
        # An unended letter waits, and what may begin an answer of the terminal.
        assert len(rest) <= 1 or rest.startswith(("\x1b]", "\x1b["))


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        # Enter: of kitty, of xterm's modifyOtherKeys, and as all others send it with Alt.
        ("\x1b[13;2u", "shift+enter"),
        ("\x1b[13;3u", "alt+enter"),
        ("\x1b[13;5u", "ctrl+enter"),
        ("\x1b[13;6u", "ctrl+shift+enter"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[27;5;13~", "ctrl+enter"),
        ("\x1b[27;6;13~", "ctrl+shift+enter"),
        ("\x1b\r", "alt+enter"),
        ("\x1b\n", "alt+enter"),
        ("\n", "ctrl+j"),
        ("\r", "enter"),
        # Words.
        ("\x1bd", "alt+d"),
        ("\x1b[100;3u", "alt+d"),
        ("\x1b[27;3;100~", "alt+d"),
        ("\x1b[1;3D", "alt+left"),
        ("\x1b\x1b[D", "alt+left"),
        ("\x1b\x1bOC", "alt+right"),
        ("\x1bb", "ctrl+left"),
        ("\x1bf", "ctrl+right"),
        ("\x1b[27;5;121~", "ctrl+y"),
        ("\x1b[27;2;9~", "shift+tab"),
        # Typed with Shift it is a letter.
        ("\x1b[27;2;65~", "A"),
        ("\x1b[27;2;33~", "exclamation_mark"),
    ],
)
def test_keys_as_terminals_send_them(sent: str, key: str) -> None:
    assert said(messages(b"x" + sent.encode() + b"y")) == ["x", key, "y"]


def test_a_key_with_alt_that_is_held_down_writes_nothing() -> None:
    assert said(messages(b"\x1bd\x1bd\x1b[Az")) == ["alt+d", "alt+d", "up", "z"]


@given(st.text(st.sampled_from("\x1b[;~0123456789u2713"), max_size=40))
@example("\x1b[1200000u")
@example("\x1b[27;5;1200000~")
@example(f"\x1b[{2**70}u")
def test_no_sequence_ends_the_reading(text: str) -> None:
    said(messages(text.encode()))
    assert said(messages(b"z")) == ["z"]


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
@pytest.mark.parametrize(
    ("answer", "graphics"),
    [
        ("\x1b_Gi=31;OK\x1b\\\x1b[?62;22c", "kitty"),
        ("\x1b_Gi=31;ENOTSUPPORTED\x1b\\\x1b[?64;4;6c", "sixel"),
        ("\x1b[?6c", ""),
    ],
)
def test_what_the_terminal_answers_is_not_typed(answer: str, graphics: str, size: int) -> None:
    told: list[str] = []
    taker = GraphicsAnswerFilter()
    assert taker.rest(answer) == answer  # nothing was asked
    taker.await_it(told.append)
    sent = f"ab{answer}c\x1b[Ad"
    typed = "".join(taker.rest(sent[at : at + size]) for at in range(0, len(sent), size))
    assert typed + taker.rest("", more=False) == "abc\x1b[Ad"
    assert told == [graphics]
    # A second answer, or one that comes late, is no text either; Esc is not held back any more.
    assert (taker.rest(f"x{answer}y"), taker.rest("\x1b")) == ("xy", "\x1b")
    assert told == [graphics]


def test_esc_waits_for_an_answer_only_for_a_moment() -> None:
    taker = GraphicsAnswerFilter()
    taker.await_it(lambda _: None)
    assert (taker.rest("a\x1b"), taker.rest("", more=False)) == ("a", "\x1b")
    taker.stop_waiting()
    assert taker.rest("\x1b") == "\x1b"


def test_a_terminal_that_others_left_without_waiting_takes_all_of_a_picture() -> None:
    master, slave = os.openpty()
    os.set_blocking(slave, False)  # as an editor leaves it
    picture = "x" * 500_000
    taken: list[bytes] = []
    errors: list[Exception] = []

    def take() -> None:
        while sum(map(len, taken)) < len(picture):
            taken.append(os.read(master, 1000))

    reader = threading.Thread(target=take, daemon=True)
    with open(slave, "w", encoding="utf-8") as file:
        outgoing = Outgoing(file, errors.append)
        reader.start()
        outgoing.write(picture)
        outgoing.flush()
        reader.join(20)
    os.close(master)
    assert b"".join(taken) == picture.encode()
    assert outgoing.n_taken == len(picture)
    assert not errors


def test_what_the_file_does_not_take_is_written_past_it_and_told_once() -> None:
    reads, writes = os.pipe()
    errors: list[Exception] = []
    with open(writes, "w", encoding="ascii") as file:
        outgoing = Outgoing(file, errors.append)
        outgoing.write("é")
        outgoing.write("ü")
        outgoing.write("a")
        outgoing.flush()
        assert outgoing.n_taken == 3
    assert os.read(reads, 100) == "éüa".encode()
    os.close(reads)
    assert [type(one) for one in errors] == [UnicodeEncodeError]


def test_what_was_written_has_arrived_when_the_terminal_answers_behind_it() -> None:
    asked: list[str] = []
    arrivals = Arrivals(lambda: asked.append("?"), 100.0)
    early = arrivals.mark(100.0 + FIRST_ANSWER_S / 2)
    assert arrivals.has_arrived(early, 100.1) is False
    arrivals.answered()
    # That was the answer to the question with which the terminal was taken.
    assert arrivals.has_arrived(early, 110.0) is False
    arrivals.answered()
    assert arrivals.has_arrived(early, 110.0) is True
    late = arrivals.mark(200.0)
    assert arrivals.has_arrived(late, 200.0 + LONGEST_ANSWER_S) is False
    assert len(asked) == 3
    # One that nobody asked for is none to what is asked next.
    arrivals.answered()
    arrivals.answered()
    assert arrivals.has_arrived(arrivals.mark(300.0), 300.0) is False


def test_a_terminal_that_does_not_answer_is_not_waited_for() -> None:
    arrivals = Arrivals(lambda: None, 100.0)
    mark = arrivals.mark(100.0)
    assert arrivals.has_arrived(mark, 100.0 + FIRST_ANSWER_S) is None
    assert arrivals.mark(101.0 + FIRST_ANSWER_S) == 0
    # It was slow.
    arrivals.answered()
    assert arrivals.has_arrived(arrivals.mark(120.0), 120.0) is False


def test_a_line_that_stands_still_for_long_is_no_terminal_that_does_not_answer() -> None:
    asked: list[None] = []
    arrivals = Arrivals(lambda: asked.append(None), 100.0)
    arrivals.answered()
    mark = arrivals.mark(200.0)
    late = 201.0 + LONGEST_ANSWER_S
    assert arrivals.has_arrived(mark, 900.0) is False
    arrivals.key_read(late - 2.0, 900.0)
    assert len(asked) == 2
    # It goes on, and the first key is read before the terminal has come to what was written.
    for _ in range(3):
        arrivals.key_read(900.0, 900.0)
    assert len(asked) == 3
    assert arrivals.has_arrived(mark, 900.0 + PATIENCE_S) is False
    arrivals.answered()
    assert arrivals.has_arrived(mark, 900.0 + PATIENCE_S) is True
    arrivals.answered()
    assert arrivals.has_arrived(arrivals.mark(950.0), 950.0) is False
    # One that answers, but not everything it was asked, is in step again.
    arrivals.mark(951.0)
    arrivals.key_read(1100.0, 1100.0)
    arrivals.answered()
    mark = arrivals.mark(1101.0 + PATIENCE_S)
    arrivals.answered()
    assert arrivals.has_arrived(mark, 1102.0 + PATIENCE_S) is True
    # One that has become another one, and says nothing, is waited for no longer.
    mark = arrivals.mark(1200.0)
    arrivals.key_read(1300.0, 1300.0)
    assert arrivals.has_arrived(mark, 1300.0 + PATIENCE_S) is False
    assert arrivals.has_arrived(mark, 1301.0 + PATIENCE_S) is None
    assert arrivals.mark(1400.0) == 0


def test_a_terminal_that_is_taken_again_answers_what_is_asked_then() -> None:
    asked: list[None] = []
    arrivals = Arrivals(lambda: asked.append(None), 100.0)
    arrivals.answered()
    arrivals.mark(101.0)
    # Its answer goes to the shell.
    arrivals.begin_again(110.0)
    assert len(asked) == 3
    late = arrivals.mark(110.1)
    assert arrivals.has_arrived(late, 110.2) is False
    arrivals.answered()
    assert arrivals.has_arrived(late, 110.2) is False
    arrivals.answered()
    assert arrivals.has_arrived(late, 110.2) is True


def test_a_terminal_that_never_answered_has_no_first_second_again() -> None:
    arrivals = Arrivals(lambda: None, 100.0)
    arrivals.begin_again(100.0 + FIRST_ANSWER_S)
    assert arrivals.mark(100.0 + FIRST_ANSWER_S) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_an_answer_presses_no_key(size: int) -> None:
    answers: list[None] = []
    incoming = Incoming(BackgroundAnswers(), list[bool]().append)
    parser = KeyParser(arrived=lambda: answers.append(None))
    sent = b"a\x1b[0nb\x1b[3n\x1b[A"
    texts = [incoming.text(sent[at : at + size]) for at in range(0, len(sent), size)]
    found: list[object] = [message for text in texts if text for message in parser.feed(text)]
    assert said(found) == ["a", "b", "up"]
    assert len(answers) == 2
