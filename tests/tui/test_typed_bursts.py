"""An Enter within a burst of keys breaks a line; one that is pressed sends."""

from __future__ import annotations

from support.cases import each
from textual import events

from kimi_tui.tui.terminal_input import KeyParser
from kimi_tui.tui.typed_bursts import BURST_S, Bursts, TypedPaste, TypedText

NEAR, FAR = BURST_S / 4, BURST_S * 4


def told(*reads: tuple[float, str]) -> list[str]:
    """Return the keys and pastes of texts that are read so many seconds after one another: pastes in angle brackets."""
    bursts, parser, now = Bursts(), KeyParser(), 0.0
    found: list[object] = []
    for after_s, text in reads:
        if after_s >= BURST_S and bursts.waits:
            found += bursts.end()
        now += after_s
        found += bursts.take(parser.feed(text), now)
    found += bursts.end()
    return [
        one.key
        if isinstance(one, events.Key)
        else f"<{one.text}>"
        if isinstance(one, TypedPaste)
        else one.text
        for one in found
        if isinstance(one, events.Key | events.Paste)
    ]


@each(
    "reads, found",
    [
        # Pasted without marks, however it is cut and ended.
        ([(0, "u1\ru2\ru3")], ["<u1\nu2\nu3>"]),
        ([(0, "u1\ru2\r")], ["<u1\nu2\n>"]),
        ([(0, "u1\r"), (NEAR, "u2\r"), (NEAR, "u3")], ["<u1\nu2\nu3>"]),
        ([(0, "u1"), (NEAR, "\r"), (NEAR, "u2")], ["u", "1", "<\nu2>"]),
        ([(0, "!a\n\tb\r!c")], ["<!a\n\tb\n!c>"]),
        ([(0, "\x1b[13u"), (FAR, "a\x1b[13ub")], ["enter", "<a\nb>"]),
        # A slow line, and programs that type.
        ([(0, "x\r")], ["x", "enter"]),
        ([(0, "x"), (NEAR, "\r")], ["x", "enter"]),
        ([(0, "x\r"), (FAR, "y\r")], ["x", "enter", "y", "enter"]),
        ([(0, "\r")], ["enter"]),
        ([(0, "\r\r")], ["enter", "enter"]),
        ([(0, "a\nb")], ["a", "ctrl+j", "b"]),
        # Other keys are no text: in a list these move, and Enter takes.
        ([(0, "\x1b[B\r\x1b[Bz")], ["down", "enter", "down", "z"]),
        ([(0, "a\r\x1b[A")], ["a", "enter", "up"]),
        ([(0, "\x1b[200~p\nq\x1b[201~\r")], ["p\nq", "enter"]),
    ],
)
def test_enter_in_a_burst(reads: list[tuple[float, str]], found: list[str]) -> None:
    assert told(*reads) == found


@each(
    "text, announced",
    [
        ("sk-1", ["sk-1"]),
        ("yes\r", ["yes"]),
        ("y\r", ["y"]),
        ("a\x1b[Bbc", ["bc"]),
        ("y", []),
        ("\r", []),
        ("\r\r", []),
        ("\x1b[B\x1b[B", []),
        ("a\rb", []),  # this is a `TypedPaste`
    ],
)
def test_characters_that_came_at_once_are_announced_before_their_keys(
    text: str, announced: list[str]
) -> None:
    bursts = Bursts()
    found = [*bursts.take(KeyParser().feed(text), 0.0), *bursts.end()]
    assert [one.text for one in found if isinstance(one, TypedText)] == announced
    for at, one in enumerate(found):
        if isinstance(one, TypedText):
            assert found[at + 1 : at + 1 + len(one.keys)] == one.keys


def test_nothing_waits_where_no_enter_is_doubtful() -> None:
    bursts, parser = Bursts(), KeyParser()
    for now, text in enumerate(("a", "long text", "\r", "\x1b[A", "\x1b[200~x\x1b[201~")):
        bursts.take(parser.feed(text), float(now))
        assert not bursts.waits, text
    bursts.take(parser.feed("x\r"), 9.0)
    assert bursts.waits
