"""What passes for ASCII in a text that somebody decides about, and is marked there: `c\u0430t` is `c<U+0430>t`.

That is letters of other scripts in a word of ours, or in a stretch that has nothing else of its script; wide and mathematical
letters, Roman numerals and signs that look like those of a command line; dashes in the place of a hyphen; and marks that stand
upon each other. Writing in another script, also beside ours, stays as it is.
"""

from __future__ import annotations

import re
from unicodedata import category, name, normalize

_MOST_SHOWN = 40
_LONG_STRETCH = 1000
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f"
# Of the marks that belong to no script more than three never stand on one letter.
_MARK_RUN = re.compile(f"([{_MARKS}]{{3}})([{_MARKS}]+)")
# Cyrillic, Greek, Armenian; all of Cherokee and Lisu.
_ALIKE = (
    "аеорсухіјѕһԁԛԝѵӏᴦАВЕЅІЈКМНОРСТУХҮԌӀԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρυικχϲϳͿօսհոցզԼՍՕ"
    "\u13a0-\u13fd\uab70-\uabbf\ua4d0-\ua4ff"
)
_ALIKES = re.compile(f"[{_ALIKE}]+")
_IN_WORD = re.compile(f"[{_ALIKE}][A-Za-z]|[A-Za-z][{_ALIKE}]")
_ALIKES_IN_WORD = re.compile(f"(?<=[A-Za-z])[{_ALIKE}]+|(?<![{_ALIKE}])[{_ALIKE}]++(?=[A-Za-z])")
_FOREIGN = re.compile(r"[^\x00-\x7f]+(?:[ ,.!?()]+[^\x00-\x7f]+)*")
_OTHER_LETTER = re.compile(f"[^\\W\\d_{_ALIKE}]")
# Of print, where an option would have a hyphen; and what always looks like one.
_DASHES = re.compile(r"(?<!\S)[\u2012-\u2015\u2212](?=\w)|[\u2010\u2011]")
_SIGNS = frozenset(
    "\u2044\u2215\u29f8\u29f5\u2236\u02d0\ua789\u2223\u01c0\u0251\u0261\ua731\u1d00\u1d04\u1d0f"
)
# Written in Chinese and Japanese text.
_WIDE_PUNCTUATION = frozenset("！（），：；？［］｛｝～％＋＆＂＇")
_OTHER_DRESS = ("SUPER", "SUBSCRIPT", "ORDINAL", "MODIFIER")


def without_doubles(text: str) -> str:
    """The text with a mark in the place of each character that passes for one of ASCII, and crowds of marks counted."""
    chars = set(text)
    doubles = "".join(char for char in chars if char in _SIGNS or _is_double(char))
    if doubles:
        text = re.sub(f"[{re.escape(doubles)}]+", _marked, text)
    if any("\u2010" <= char <= "\u2015" or char == "\u2212" for char in chars):
        text = _DASHES.sub(_marked, text)
    if any(category(char) == "Mn" for char in chars):
        text = _MARK_RUN.sub(lambda found: f"{found[1]}<{len(found[2])} marks>", text)
    if _ALIKES.search(text) is None:
        return text
    if _IN_WORD.search(text) is not None:
        text = _ALIKES_IN_WORD.sub(_marked, text)
    return _FOREIGN.sub(_told, text)


def _is_double(char: str) -> bool:
    """Whether a character is one of ASCII in another dress."""
    if char < "\x80" or len(plain := normalize("NFKC", char)) != 1 or not " " < plain <= "~":
        return False
    if char in _WIDE_PUNCTUATION or category(char) not in (
        "Ll",
        "Lu",
        "Nd",
        "Nl",
        "Po",
        "Pd",
        "Sc",
        "Sk",
        "Sm",
    ):
        return False
    said = name(char, "")
    return not any(word in said for word in _OTHER_DRESS)


def _told(found: re.Match[str]) -> str:
    """A stretch of another script: as it is where it has letters that look like none of ours."""
    text = found.group()
    if _OTHER_LETTER.search(text):
        return text
    return _ALIKES.sub(_marked, text) if len(text) < _LONG_STRETCH else _counted(text)


def _marked(found: re.Match[str]) -> str:
    text = found.group()
    if len(text) > _MOST_SHOWN:
        return _counted(text)
    return "".join(f"<U+{ord(char):04X}>" for char in text)


def _counted(text: str) -> str:
    return f"<{len(text)} letters that look like others>"
