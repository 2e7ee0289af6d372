"""Escape sequences in the terminal's input: finds where each begins and ends, and the keys that they stand for.

A complete but unknown sequence is dropped, never typed: a late answer, a key of another terminal. An incomplete one waits for
its end, so that a paste whose first mark comes in two pieces is still a paste.

Keys are read as kitty, xterm (modifyOtherKeys), rxvt and the Linux console send them. A key with Ctrl, Alt or Super is named
by its place on a Latin keyboard where the layout is another one: Ctrl+С of a Russian keyboard is Ctrl+C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual import events

from kimi_tui.tui.textual_patches.terminal import (
    FUNCTIONAL_KEYS,
    MODIFIER_FUNCTIONAL_KEYS,
    character_to_key,
)

CHORDS = ("alt+", "ctrl+", "super+", "hyper+", "meta+")
"""Prefixes of keys that insert no text, whatever character Textual gives them."""
ESC = "\x1b"
PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"
ESCAPE_S = 0.1
"""Seconds to wait whether an escape begins a sequence."""
STRING_S = 1.0
"""Seconds to wait for the rest of a string (an answer of the terminal), as typed letters would be taken for it."""
REST_S = 5.0
"""Seconds to wait for the rest of a key's sequence; the rest of a paste's mark is awaited without limit."""
LONGEST_STRING = 8_192
"""Characters of a string that are kept until its end; longer ones are dropped at once."""

_STRINGS = "]PX^_"
BEGINNINGS = frozenset("[O" + _STRINGS)
"""Characters after an escape that begin a longer sequence, whose rest may be late."""
_WHOLE = re.compile(
    r"\x1b(?:"
    r"\[\[[^\x1b]"  # the Linux console: F1 to F5
    r"|\[M[^\x1b]{3}"  # the mouse, as the first xterm sent it
    r"|\[\d{1,2}\$"  # rxvt: with Shift
    r"|\[(?![M\[])[0-?]{0,8192}+[ -/]{0,4}+[@-~]"
    r"|O[0-9;]{0,8}+[ -~]"
    r"|\x1b[\[O][A-D]"  # an arrow with Alt, as some send it
    rf"|[{re.escape(_STRINGS)}][^\x07\x1b]*+(?:\x07|\x1b\\)"
    rf"|[^\[O{re.escape(_STRINGS)}\x1b]"  # a key with Alt
    r")",
    re.DOTALL,
)
_BEGUN = re.compile(
    r"\x1b(?:"
    r"\[(?:\[|M[^\x1b]{0,2}|[0-?]{0,8192}+[ -/]{0,4}+)?"
    r"|O[0-9;]{0,8}+"
    r"|\x1b[\[O]?"
    rf"|[{re.escape(_STRINGS)}][^\x07\x1b]*+\x1b?"
    r")?\Z",
    re.DOTALL,
)
_BROKEN = re.compile(rf"\x1b(?:\[[0-?]*+[ -/]*+|O[0-9;]*+|[{re.escape(_STRINGS)}][^\x07\x1b]*+)?")
"""An incomplete sequence that is followed by something else."""

_LATIN = "qwertyuiop[]asdfghjkl;'zxcvbnm,./`\\"
_LAYOUTS = (
    ("йцукенгшщзхъфывапролджэячсмитьбю.ё\\", _LATIN),
    ("іїєґўљњђјћѕџ", "s]'\\oqw]j'zx"),  # where Ukrainian, Belarusian and Serbian keyboards differ
    ("ςερτυθιοπασδφγηξκλζχψωβνμ", "wertyuiopasdfghjklzxcvbnm"),
    ("קראטוןםפשדגכעיחלךףזסבהנמצתץ", "ertyuiopasdfghjkl;zxcvbnm,."),
    ("ضصثقفغعهخحجدشسيبلاتنمكطئءؤرىةوزظﻻذ", "qwertyuiop[]asdfghjkl;'zxcvnm,./b`"),
    ("یکگچ", "d;']"),  # where a Persian keyboard differs
    ("ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔㅁㄴㅇㄹㅎㅗㅓㅏㅣㅋㅌㅊㅍㅠㅜㅡ", "qwertyuiopasdfghjklzxcvbnm"),
    ("ㅃㅉㄸㄲㅆㅒㅖ", "qwertop"),
    ("ๆไำพะัีรนยบลฟหกดเ้่าสวงผปแอิืทมใฝ", "qwertyuiop[]asdfghjkl;'zxcvbnm,./"),
    ("ქწერტყუიოპასდფგჰჯკლზხცვბნმ", "qwertyuiopasdfghjklzxcvbnm"),
)
LATIN_KEYS = {
    sign: latin
    for signs, latins in reversed(_LAYOUTS)
    for sign, latin in zip(signs, latins, strict=True)
    if not sign.isascii()
}
"""The key of a Latin keyboard for a letter of another script, for terminals that send only the letter."""

_MORE_KEYS = {
    **{
        f"\x1b[{code}{sign}": f"{held}{name}"
        for code, name in (
            *((2, "insert"), (3, "delete"), (5, "pageup"), (6, "pagedown")),
            *((7, "home"), (8, "end")),
        )
        for sign, held in (("$", "shift+"), ("^", "ctrl+"), ("@", "ctrl+shift+"))
    },
    **{
        f"\x1b{start}{letter}": f"{held}{name}"
        for letter, name in (("a", "up"), ("b", "down"), ("c", "right"), ("d", "left"))
        for start, held in (("[", "shift+"), ("O", "ctrl+"))
    },
}
"""Keys of rxvt that Textual does not know, or takes for others."""
_KEYPAD_TEXT = {"\x1bO ": " ", "\x1bOX": "=", "\x1bOl": ","}
_OLD_FUNCTION_KEY = re.compile(r"\x1bO(\d{1,2})([A-DFHP-S])\Z")
"""A key with a modifier as old xterms sent it."""
_KEY = re.compile(
    r"\x1b\[(\d{0,7})((?::\d{0,7}){0,2})(?:;(\d{0,4})(?::(\d?))?(?:;([\d:]*))?)?([u~A-HP-S])\Z"
)
"""A key as kitty and xterm send it: its number with alternates, modifiers with the kind of event, and the characters that it writes."""
_OTHER_KEY = re.compile(r"\x1b\[27;(\d{1,4});(\d{1,7})~\Z")
"""A key of xterm's modifyOtherKeys: its modifiers, and the number of its character."""
_SHIFT, _ALT = 1, 2
_MODIFIERS = ((4, "ctrl"), (8, "super"), (16, "hyper"), (32, "meta"))
_COMMANDS = _ALT | sum(bit for bit, _ in _MODIFIERS)
"""Modifiers with which a key inserts no text."""
_RELEASED = "3"
_CONTROLS = {"enter": "\r", "tab": "\t", "backspace": "\x7f"}
_PRIVATE = range(0xE000, 0xF900)
"""Numbers of keys that write nothing."""


class SequenceReader:
    """Splits the terminal's input into text and complete sequences; an incomplete one waits for its end."""

    def __init__(self) -> None:
        self._held = ""
        self._held_at = 0.0

    def feed(self, data: str, now: float) -> Iterator[str]:
        """Yield the pieces of a text: each is text without an escape, or one complete sequence, which may be a lone escape.

        Args:
            data: the new input.
            now: the monotonic time.
        """
        if not self._held and ESC not in data:
            yield data
            return
        text, at = self._held + data, 0
        if now - self._held_at >= REST_S and not any(
            mark.startswith(text[: len(mark)]) for mark in (PASTE_START, PASTE_END)
        ):
            text = data
        self._held = ""
        while at < len(text):
            start = text.find(ESC, at)
            if start != at:
                end = len(text) if start < 0 else start
                yield text[at:end]
                at = end
            elif (whole := _WHOLE.match(text, at)) is not None:
                yield whole[0]
                at = whole.end()
            elif _BEGUN.match(text, at) is not None:
                self._hold(text[at:], now)
                return
            elif text[at + 1] == ESC:
                yield ESC
                at += 1
            else:
                broken = _BROKEN.match(text, at)
                at = broken.end() if broken is not None else at + 1

    def _hold(self, begun: str, now: float) -> None:
        if len(begun) > LONGEST_STRING and begun[1] in _STRINGS:
            # The end mark may come in two pieces, too.
            begun = begun[:3] + (ESC if begun.endswith(ESC) else "")
        self._held, self._held_at = begun, now

    def let_go(self, now: float) -> Iterator[str]:
        """Yield the sequences that nothing has followed for long enough: an escape, and a key with Alt that could begin a longer one."""
        held, waited = self._held, now - self._held_at
        if not held or waited < ESCAPE_S:
            return
        if held.startswith(ESC + ESC):
            self._held = held[1:]
            yield ESC
        elif len(held) <= 2:
            self._held = ""
            yield held
        elif waited >= STRING_S and held[1] in _STRINGS:
            self._held = ""


def sequence_keys(sequence: str) -> tuple[events.Key, ...] | None:
    """Return the keys that a complete sequence stands for; empty for one that writes nothing, None if it is unknown here.

    Args:
        sequence: a sequence that `SequenceReader` returned.
    """
    if (name := _MORE_KEYS.get(sequence)) is not None:
        return (events.Key(name, None),)
    if (text := _KEYPAD_TEXT.get(sequence)) is not None:
        return (events.Key(character_to_key(text), text),)
    if (old := _OLD_FUNCTION_KEY.match(sequence)) is not None:
        sequence = f"\x1b[1;{old[1]}{old[2]}"
    elif (other := _OTHER_KEY.match(sequence)) is not None:
        return _modified(int(other[2]), (), _bits(other[1]), (), "")
    found = _KEY.match(sequence)
    if found is None:
        return None
    number, alternates, modifiers, kind, texts, end = found.groups(default="")
    if kind == _RELEASED:
        return ()
    name = FUNCTIONAL_KEYS.get(f"{number or 1}{end}", "")
    if not name and end != "u":
        return None  # the number is that of a key without a character
    others = tuple(int(one) if one else 0 for one in alternates.split(":")[1:])
    written = tuple(int(one) for one in texts.split(":") if one)
    return _modified(int(number or 1), others, _bits(modifiers), written, name)


def _bits(modifiers: str) -> int:
    return max(0, int(modifiers or 1) - 1)


def _modified(
    number: int, alternates: tuple[int, ...], bits: int, written: tuple[int, ...], name: str
) -> tuple[events.Key, ...]:
    """Return the keys of a number with modifiers.

    Args:
        number: the number of the key's character without Shift.
        alternates: the number with Shift, and that of the same place on a Latin keyboard; 0 if one is not reported.
        bits: the modifiers.
        written: the numbers of the characters that it writes.
        name: the name of a key that is not named by its character; else empty.
    """
    try:
        texts = [chr(one) for one in written]
        sign = chr(number) if not name else ""
        shifted, latin = ("".join(chr(one) for one in pair) for pair in _two(alternates))
    except (ValueError, OverflowError):
        return ()  # there is no such character
    if not texts and not name:
        if number in _PRIVATE or (number == 0 and not texts):
            return ()
        if bits & _COMMANDS:
            if not sign.isascii():
                sign = latin if latin.isascii() and latin else LATIN_KEYS.get(sign.lower(), sign)
        elif sign.isprintable():
            texts = [(shifted or sign.upper()) if bits & _SHIFT else sign]
    if texts:
        return tuple(_key(name, text, text, bits) for text in texts if text.isprintable())
    character = "" if bits & (_SHIFT | _COMMANDS) else _CONTROLS.get(name, "")
    return (_key(name, sign, character, bits),)


def _two(alternates: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shifted, latin = (*alternates, 0, 0)[:2]
    return (shifted,) if shifted else (), (latin,) if latin else ()


def _key(name: str, sign: str, character: str, bits: int) -> events.Key:
    """Return a key by its name or character; Shift and Alt are part of the written character."""
    name = name or _key_name(sign)
    held: list[str] = []
    if name not in MODIFIER_FUNCTIONAL_KEYS:
        if bits & _SHIFT and (not character or character.isspace()):
            held.append("shift")
        if bits & _ALT and not character:
            held.append("alt")
        held += [modifier for bit, modifier in _MODIFIERS if bits & bit]
    return events.Key("+".join([*sorted(held), name]), character or None)


def _key_name(sign: str) -> str:
    """Return the name of a key by its character; keys such as Enter have names of their own."""
    code = ord(sign) if len(sign) == 1 else 0
    return FUNCTIONAL_KEYS.get(f"{code}u", "") or character_to_key(sign)
