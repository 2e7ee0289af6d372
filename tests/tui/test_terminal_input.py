"""The input of the terminal becomes text that cannot end the program, and pastes that press no keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import each
from textual import events
from textual.message_pump import MessagePump

from kimi_tui.tui import terminal_input
from kimi_tui.tui.terminal_input import (
    FIRST_ANSWER_S,
    LAST_ANSWER_S,
    LONGEST_ANSWER_S,
    MOST_LOST,
    PASTE_END,
    PASTE_START,
    BackgroundAnswers,
    GraphicsAnswerFilter,
    Incoming,
    KeyParser,
    Outgoing,
    PaintWatch,
    WriteAcknowledgements,
)


def messages(*pieces: bytes) -> list[object]:
    """Return the messages that Textual makes of bytes in these pieces."""
    incoming, parser = Incoming(BackgroundAnswers(), list[bool]().append), KeyParser()
    texts = [text for piece in pieces if (text := incoming.text(piece))]
    return [message for text in texts for message in parser.feed(text)]


def pasted(text: str) -> bytes:
    """Return the bytes that a terminal sends for a paste."""
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


@each(
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
    # One alone does not end the typed text.
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


@each(
    "sent, key",
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


@each("size", [1, 3, 8, 1000])
@each(
    "answer, graphics",
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
    arrivals = WriteAcknowledgements(lambda: asked.append("?"), 100.0)
    early = arrivals.mark(100.0 + FIRST_ANSWER_S / 2)
    assert arrivals.has_arrived(early, 100.1) is False
    arrivals.answered(100.6)
    # That was the answer to the question asked when the terminal was taken.
    assert arrivals.has_arrived(early, 110.0) is False
    arrivals.answered(110.0)
    assert arrivals.has_arrived(early, 110.0) is True
    late = arrivals.mark(200.0)
    assert arrivals.has_arrived(late, 200.0 + LONGEST_ANSWER_S) is False
    assert len(asked) == 3
    # An answer without a question does not answer the next question.
    arrivals.answered(290.0)
    arrivals.answered(290.0)
    assert arrivals.has_arrived(arrivals.mark(300.0), 300.0) is False


def test_a_terminal_that_does_not_answer_is_not_waited_for() -> None:
    arrivals = WriteAcknowledgements(lambda: None, 100.0)
    mark = arrivals.mark(100.0)
    assert arrivals.has_arrived(mark, 100.0 + FIRST_ANSWER_S) is None
    assert arrivals.mark(100.0 + FIRST_ANSWER_S) == 0
    # The terminal was slow.
    late = 101.0 + FIRST_ANSWER_S
    arrivals.answered(late)
    assert arrivals.has_arrived(arrivals.mark(late), late) is False


def test_a_terminal_is_given_up_when_keys_come_over_the_line_and_no_answer() -> None:
    arrivals = WriteAcknowledgements(lambda: None, 100.0)
    arrivals.answered(100.1)
    mark = arrivals.mark(103.0)
    # The line may be broken, for however long: what was typed comes at once when it is whole again, as the answer does.
    arrivals.key_read(104.0)
    assert arrivals.has_arrived(mark, 5000.0) is False
    arrivals.key_read(5000.1)
    assert arrivals.has_arrived(mark, 5001.0) is False
    arrivals.answered(5001.1)
    assert arrivals.has_arrived(mark, 5001.1) is True
    mark = arrivals.mark(5002.0)
    assert arrivals.has_arrived(mark, 5003.0 + LONGEST_ANSWER_S + LAST_ANSWER_S) is False
    # The terminal has become another one.
    for at in (0.0, LAST_ANSWER_S - 1.0):
        arrivals.key_read(6000.0 + at)
    assert arrivals.has_arrived(mark, 6000.0 + LAST_ANSWER_S) is False
    given_up = 6000.1 + LAST_ANSWER_S
    assert arrivals.has_arrived(mark, given_up) is False
    assert arrivals.has_arrived(mark, given_up + FIRST_ANSWER_S) is None
    assert arrivals.mark(given_up + FIRST_ANSWER_S) == 0


def test_an_answer_that_was_lost_is_not_waited_for_for_ever() -> None:
    arrivals = WriteAcknowledgements(lambda: None, 100.0)
    arrivals.answered(100.1)
    arrivals.mark(101.0)
    arrivals.mark(102.0)
    arrivals.answered(102.1)
    arrivals.key_read(200.0)
    mark = arrivals.mark(300.0)
    assert arrivals.has_arrived(mark, 300.1) is False
    arrivals.answered(300.2)
    arrivals.answered(300.2)
    assert arrivals.has_arrived(mark, 300.3) is True
    assert arrivals.has_arrived(arrivals.mark(500.0), 500.0 + FIRST_ANSWER_S) is False


def test_what_is_answered_behind_a_stop_may_have_been_asked_before_it() -> None:
    asked: list[None] = []
    arrivals = WriteAcknowledgements(lambda: asked.append(None), 100.0)
    arrivals.answered(100.1)
    early = [arrivals.mark(101.0), arrivals.mark(101.1)]
    # The answers to these go to the shell, or are on their way.
    arrivals.begin_again(110.0)
    late = arrivals.mark(110.1)
    assert not any(arrivals.has_arrived(mark, 110.2) for mark in early)
    n_asked = len(asked)
    n_answers = 0
    while not arrivals.has_arrived(late, 110.5):
        arrivals.answered(110.5)
        n_answers += 1
    # Two late answers, and three to the first questions after the stop, would not be enough; without these two, all can arrive.
    assert 2 + 3 < n_answers <= n_asked - 3


def test_what_was_asked_before_a_stop_is_not_waited_for_for_ever() -> None:
    asked: list[None] = []
    arrivals = WriteAcknowledgements(lambda: asked.append(None), 100.0)
    arrivals.answered(100.1)
    arrivals.mark(101.0)
    arrivals.begin_again(110.0)
    arrivals.mark(110.1)
    for _ in range(len(asked) - 2):
        arrivals.answered(110.2)
    # One of six was lost, or all have come; then each is asked once again.
    n_before = len(asked)
    late = arrivals.mark(111.0)
    assert len(asked) == n_before + 2
    arrivals.answered(111.1)
    arrivals.answered(111.1)
    assert arrivals.has_arrived(late, 111.2) is True
    arrivals.answered(111.3)
    n_before = len(asked)
    arrivals.mark(112.0)
    assert len(asked) == n_before + 1


def test_a_terminal_that_never_answered_has_no_first_second_again() -> None:
    asked: list[None] = []
    arrivals = WriteAcknowledgements(lambda: asked.append(None), 100.0)
    for n_stops in range(1, 20):
        arrivals.begin_again(100.0 + FIRST_ANSWER_S)
        assert len(asked) == 1 + n_stops
    assert arrivals.mark(100.0 + FIRST_ANSWER_S) == 0


def test_many_stops_over_a_line_that_stands_still_ask_no_more_than_can_be_answered() -> None:
    asked: list[None] = []
    arrivals = WriteAcknowledgements(lambda: asked.append(None), 100.0)
    arrivals.answered(100.1)
    for _ in range(100):
        arrivals.begin_again(200.0)
    assert len(asked) < 100 * MOST_LOST
    mark = arrivals.mark(200.1)
    assert arrivals.has_arrived(mark, 200.2) is False
    for _ in range(MOST_LOST * 2):
        arrivals.answered(200.3)
    assert arrivals.has_arrived(mark, 200.4) is True


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


class TimedPump(MessagePump):
    """A widget whose timers run out at once, on a clock of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.looks_at: list[float] = []
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_after_refresh(
        self, callback: Callable[..., object], *args: object, **_: object
    ) -> bool:
        callback(*args)
        return True

    def set_timer(self, delay: float, callback: Callable[[], None], **_: object) -> None:  # type: ignore[override]
        self.waiting.append((delay, callback))

    def run_until(self, end: float) -> None:
        """Let the time go on."""
        while self.waiting and self.now + self.waiting[0][0] <= end:
            delay, look = self.waiting.pop()
            self.now += delay
            self.looks_at.append(self.now)
            look()


def test_a_silent_line_is_asked_ever_more_seldom_whether_it_has_painted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, has_come = TimedPump(), False
    monkeypatch.setattr(terminal_input, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(terminal_input, "has_arrived", lambda *_: has_come)
    monkeypatch.setattr(terminal_input, "_driver_of", lambda _: None)
    watch = PaintWatch(clock)
    watch.begin()
    clock.run_until(100.1)
    assert len(clock.looks_at) >= 4
    clock.run_until(160.0)
    assert len(clock.looks_at) < 100
    has_come = True
    clock.run_until(162.0)
    assert 160.0 < watch.seen_at <= 161.1
