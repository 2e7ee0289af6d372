"""Sequences of the terminal are keys by every layout and protocol, or nothing: never text that nobody typed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import each
from textual import events

from kimi_tui.tui import terminal_input
from kimi_tui.tui.key_sequences import (
    LATIN_KEYS,
    PASTE_END,
    PASTE_START,
    REST_S,
    SequenceReader,
)
from kimi_tui.tui.terminal_input import BackgroundAnswers, Incoming, KeyParser


def read(pieces: Iterable[bytes], parser: KeyParser | None = None) -> list[str]:
    """Return the typed and pasted text of bytes that come in these pieces: keys by name, pastes in angle brackets."""
    incoming, parser = Incoming(BackgroundAnswers(), list[bool]().append), parser or KeyParser()
    texts = [text for piece in pieces if (text := incoming.text(piece))]
    found = [message for text in texts for message in parser.feed(text)]
    return [
        f"<{message.text}>" if isinstance(message, events.Paste) else message.key
        for message in found
        if isinstance(message, events.Paste | events.Key)
    ]


@pytest.mark.exhaustive
@each(
    "sent, key",
    [
        # Kitty with the key in the same place of a Latin keyboard: Russian, Greek, Hebrew, Arabic, Korean.
        ("\x1b[1089::99;5u", "ctrl+c"),
        ("\x1b[1097:1065:111;5u", "ctrl+o"),
        ("\x1b[1092:1060:97;6u", "ctrl+shift+a"),
        ("\x1b[1074::100;3u", "alt+d"),
        # Without: by the place of the letter.
        *(
            (f"\x1b[{ord(sign)};5u", f"ctrl+{latin}")
            for sign, latin in zip("стащзгй", "cnfopuq", strict=True)
        ),
        *(
            (f"\x1b[{ord(sign)};5u", f"ctrl+{latin}")
            for sign, latin in zip("ψτφ", "ctf", strict=True)
        ),
        *(
            (f"\x1b[{ord(sign)};5u", f"ctrl+{latin}")
            for sign, latin in zip("באכ", "ctf", strict=True)
        ),
        *(
            (f"\x1b[{ord(sign)};5u", f"ctrl+{latin}")
            for sign, latin in zip("ؤفب", "ctf", strict=True)
        ),
        *(
            (f"\x1b[{ord(sign)};5u", f"ctrl+{latin}")
            for sign, latin in zip("ㅊㅅㄹ", "ctf", strict=True)
        ),
        ("\x1b[27;5;1089~", "ctrl+c"),
        # A Latin layout itself tells where its letters are.
        ("\x1b[113::97;5u", "ctrl+q"),
        # The text of the layout is inserted, whatever key it is.
        ("\x1b[1089::99;;1089u", "с"),
        ("\x1b[97;2;65u", "A"),
        ("\x1b[97:65;2u", "A"),
        ("\x1b[13;130u", "shift+enter"),
        ("\x1b[13;2:1u", "shift+enter"),
        ("\x1b[57414;;13u", ""),
        ("\x1b[57400;129;49u", "1"),
        # Keypad, rxvt, old xterms, the Linux console.
        ("\x1b[5$", "shift+pageup"),
        ("\x1b[6@", "ctrl+shift+pagedown"),
        ("\x1b[7^", "ctrl+home"),
        ("\x1bOb", "ctrl+down"),
        ("\x1b[a", "shift+up"),
        ("\x1bO5P", "ctrl+f1"),
        ("\x1b[1;2R", "shift+f3"),
        ("\x1b[[A", "f1"),
        ("\x1bOM", "enter"),
        ("\x1bOq", "1"),
        ("\x1b\x7f", "ctrl+w"),
        # Sequences without a key are ignored: keypad 5, releases, late answers, unknown ones.
        ("\x1bOE", ""),
        ("\x1b[97;1:3u", ""),
        ("\x1b[>41;379;0c", ""),
        ("\x1b[4;600;800t", ""),
        ("\x1b[24;80R", ""),
        ("\x1b[?2026;2$y", ""),
        ("\x1b[?64;1;2c", ""),
        ("\x1b[=0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0c", ""),
        ("\x1b[999~", ""),
        ("\x1b[99;5~", ""),
        ("\x1bPzz\x1b\\", ""),
        (f"\x1b]52;c;{'A' * 20_000}\x1b\\", ""),
        ("\x1b_Gi=1;OK\x1b\\", ""),
        ("\x1b[M !!", ""),
        ("\x1b[35;80;24M", ""),
        ("\x1b[<35;80;24M", ""),
    ],
)
def test_every_sequence_is_a_key_or_nothing(sent: str, key: str) -> None:
    for pieces in ([f"x{sent}y".encode()], [b"x", *(bytes([one]) for one in sent.encode()), b"y"]):
        assert [one for one in read(pieces) if one] == ["x", *filter(None, [key]), "y"]


def test_a_text_that_an_input_method_writes_at_once_is_written() -> None:
    text = "修复失败的测试然后提交再推送到远程"
    codes = ":".join(str(ord(one)) for one in text)
    assert "".join(read([f"\x1b[0;;{codes}u".encode()])) == text


def test_each_layout_has_the_keys_that_stop_and_quit() -> None:
    for letters in ("сй", "ב", "ؤض", "ㅊㅂ", "ψ", "แๆ", "ცქ"):
        assert {LATIN_KEYS[letter] for letter in letters} <= {"c", "q"}, letters
    assert all(latin.isascii() for latin in LATIN_KEYS.values())


def test_a_character_right_behind_esc_is_a_key_of_its_own_unless_it_is_bound_with_alt() -> None:
    for sent in "/hж.1é":
        for pieces in ([f"\x1b{sent}".encode()], [b"\x1b", sent.encode()]):
            assert read(pieces) == ["escape", *read([sent.encode()])], sent
    assert read([b"\x1b/"], KeyParser(chords=frozenset({"alt+slash"}))) == ["alt+slash"]
    assert read([b"\x1bhello"]) == ["escape", *"hello"]
    assert read([b"\x1bd\x1be"]) == ["alt+d", "alt+e"]


def test_a_control_key_right_behind_esc_is_a_key_of_its_own_unless_an_action_has_the_chord() -> (
    None
):
    for pieces in ([b"\x1b\x11"], [b"\x1b", b"\x11"]):
        assert read(pieces) == ["escape", "ctrl+q"]
        assert read(pieces, KeyParser(chords=frozenset({"alt+ctrl+q"}))) == ["alt+ctrl+q"]
    assert read([b"\x1b\x03\x1b\x15"]) == ["escape", "ctrl+c", "escape", "ctrl+u"]
    assert read([b"\x1b\r\x1b\t\x1b\x08\x1b\x7f"]) == [
        *("alt+enter", "shift+tab", "alt+backspace", "ctrl+w")
    ]


class Clock:
    """A time that passes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        """Return the present time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the parser."""
    found = Clock()
    monkeypatch.setattr(terminal_input.time, "monotonic", found.monotonic)
    return found


@pytest.mark.parametrize("cut", range(2, len(PASTE_START)))
def test_a_paste_whose_mark_comes_in_two_pieces_is_one(clock: Clock, cut: int) -> None:
    data, parser = f"{PASTE_START}ls\n!x{PASTE_END}".encode(), KeyParser()
    incoming = Incoming(BackgroundAnswers(), list[bool]().append)
    found: list[str] = []
    for piece in (data[:cut], data[cut:]):
        text = incoming.text(piece)
        for message in (*(parser.feed(text) if text else ()), *parser.tick()):
            assert isinstance(message, events.Paste)
            found.append(message.text)
        # After an escape alone it may be a key.
        clock.now += 60 if cut > len("\x1b[") else 0.05
        assert list(parser.tick()) == []
    assert found == ["ls\n!x"]


def test_what_has_begun_is_waited_for_and_not_typed(clock: Clock) -> None:
    parser = KeyParser()

    def typed(text: str, after_s: float) -> list[str]:
        clock.now += after_s
        found = [*parser.tick(), *(parser.feed(text) if text else ())]
        return [message.key for message in found if isinstance(message, events.Key)]

    assert typed("\x1b", 0) == []
    assert typed("", 0.2) == ["escape"]
    assert typed("\x1b[", 0) == []
    assert typed("", 0.2) == ["alt+left_square_bracket"]
    assert typed("\x1b[1;", 0) == []
    assert typed("5A", 1) == ["ctrl+up"]
    # Its end never came: what is typed long after it is.
    assert typed("\x1b[1;", 0) == []
    assert typed("A", REST_S) == ["A"]
    # A string of the terminal's that breaks off takes no more than a second's keys with it.
    assert typed("\x1b]52;c;AAAA", 0) == []
    assert typed("BBBB", 0.5) == []
    assert typed("hello", 2) == list("hello")


@given(
    st.lists(st.text(st.sampled_from("\x1b[]OP_;$~0129<>?uMtAa\x07\\"), max_size=12), max_size=6)
)
@example(["\x1b\x1b[A"])
@example(["\x1b]", "0;x\x1b", "\\a"])
def test_however_it_is_cut_it_means_the_same(pieces: list[str]) -> None:
    def tokens(parts: list[str]) -> list[str]:
        reader = SequenceReader()
        found = [token for part in parts if part for token in reader.feed(part, 0.0)]
        return [
            one for token in found for one in ([token] if token.startswith("\x1b") else list(token))
        ]

    assert tokens(pieces) == tokens(["".join(pieces)])


def test_the_terminal_says_that_it_tells_keys_apart_or_shows_it() -> None:
    for sent, knows in (
        ("\x1b[?29u", True),
        ("\x1b[?0u", False),
        ("\x1b[>4;1m", True),
        ("\x1b[>4;0m", False),
        ("\x1b[27;2;13~", True),
        ("\x1b[13;2u", True),
        ("\r", False),
        ("\x1b\r", False),
    ):
        told: list[bool] = []
        parser = KeyParser(extended=lambda told=told: told.append(True))
        list(parser.feed(sent))
        assert bool(told) is knows, sent


def test_the_mouse_of_rxvt_and_of_first_xterms_is_read() -> None:
    for press, release in (("\x1b[34;80;24M", "\x1b[35;80;24M"), ('\x1b[M"p8', "\x1b[M#p8")):
        down, up = list(KeyParser().feed(press + release))
        assert isinstance(down, events.MouseDown)
        assert isinstance(up, events.MouseUp)
        assert [(one.button, one.x, one.y) for one in (down, up)] == [(3, 79, 23)] * 2
