"""Words that engine and screen share: titles of messages, numbers with their noun, numbers of tokens, and lists that name the first few.

The title of a message is its text, or the names of its images. A message contains each pasted image in its text as a chip, `[image shot.png 1280x800 ~1.4k]`. In the prompt the chip
describes the image; in a title it would only take room.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CHIP_START = "[image "
CHIP = re.compile(
    r"\[image (?:(?P<name>[^\[\]\n]{1,100}) )?\d{1,6}x\d{1,6} ~[0-9.]{1,6}[kM]?(?:, \d{1,3})?\]"
)
# The patterns are strings: compiling them would delay the first paint.
_CUT = r"\[image [^\[\]\n]{0,120}…$"
"""Matches the part of a chip at the end of an older title."""
_LINE_MARK = r"^(?:#{1,6} |> ?|[-*+] (?:\[[ xX]\] )?)"
_LINE_MARKS = ("#", ">", "-", "*", "+")
"""The characters with which a match of `_LINE_MARK` begins."""
_LINK = r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{1,400}\)"
# Patterns that begin with the asterisk itself are looked for ten times as fast as ones that begin with what is before it.
_OPENING = r"\*(?<![\w*]\*)\*{0,2}(?=[\w\"'“(]|$)"
_CLOSING = r"\*(?:(?<=[\w.!?:;,\"'”)]\*)|(?<=^\*))\*{0,2}(?!\w)"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `1,998 steps`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGKILL`; for a number without a name `signal 70`."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tokens(count: int, *, estimated: bool = False) -> str:
    """Format a number of tokens as `840`, `18.4k`, `211k`, `1.2M`, in at most 6 cells; estimates begin with `~`."""
    mark = "~" if estimated else ""
    if count < 1_000:
        return f"{mark}{count}"
    if count < 99_950:
        return f"{mark}{count / 1_000:.1f}k"
    if count < 999_500:
        return f"{mark}{round(count / 1_000)}k"
    return f"{mark}{count / 1_000_000:.1f}M"


def some_of(names: Sequence[str], most: int, count: int = 0) -> str:
    """Return the first names of a list: `a.py, b.py and 3 more`.

    Args:
        names: the names, or the first of them.
        most: the largest number of names that are given.
        count: the number of all names, if `names` has only the first; 0 for as many as `names` has.
    """
    more = max(count, len(names)) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {more:,} more" if more else "")


def titled(text: str, names: Sequence[str] = ()) -> str:
    """Return a message without its chips; a message of chips alone becomes `Image shot.png`.

    Args:
        text: the text of the message.
        names: the names of its images, if they are known from elsewhere; empty texts for images without a name.
    """
    if CHIP_START not in text:
        return text if text.strip() or not names else _image_title(names)
    chips = [found["name"] or "" for found in CHIP.finditer(text)]
    words = re.sub(_CUT, "", CHIP.sub("", text))
    if words.strip():
        return "\n".join(" ".join(line.split()) for line in words.split("\n")).strip("\n")
    return _image_title(names or chips)


def unmarked(text: str) -> str:
    """Return Markdown as one line of plain words, for a label: without marks of headings, lists, emphasis, code and links.

    Code fences are left out. The text is the model's, and may be the beginning of a longer one.
    """
    lines = [line.strip() for line in text.split("\n")]
    shown = [
        # Most lines have no mark, and every label of a long session is made when it is opened.
        re.sub(_LINE_MARK, "", line) if line.startswith(_LINE_MARKS) else line
        for line in lines
        if not line.startswith(("```", "~~~"))
    ]
    parts = " ".join(filter(None, shown)).split("`")
    # The parts with odd numbers are code, in which asterisks are no marks.
    for at in range(0, len(parts), 2):
        words = re.sub(_LINK, r"\1", parts[at]) if "](" in parts[at] else parts[at]
        if "*" in words:
            words, n_opened = re.subn(_OPENING, "", words)
            words = re.sub(_CLOSING, "", words) if n_opened or at else words
        parts[at] = words
    return "".join(parts)


def _image_title(names: Sequence[str]) -> str:
    known = list(dict.fromkeys(filter(None, names)))
    if not known:
        return "Image" if len(names) < 2 else f"{len(names)} images"
    return f"{'Image' if len(known) == 1 else 'Images'} {', '.join(known)}"


def sentences(text: str, advice: str) -> str:
    """Return what happened and what to do about it as one text."""
    if not (text and advice):
        return text or advice
    return f"{text if text[-1:] in '.!?' else f'{text}.'} {advice}"
