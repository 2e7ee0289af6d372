"""Sanitizes foreign text for display: text written by a model, a tool, a file, a server or a stored session.

The result holds no control bytes, no terminal sequences and no invisible characters, except joiners that some scripts are
spelled with. Markup is not handled here: widgets show these strings as plain text.
"""

from __future__ import annotations

import re
from copy import copy
from enum import Enum, auto
from functools import cache
from unicodedata import category

STRING_LIMIT = 65_536
"""The longest OSC, DCS, APC, PM or SOS string that is dropped; the text after an unterminated one is shown again."""
CSI_LIMIT = 256
"""The longest sequence of parameters of one CSI or charset sequence."""

# Bidirectional controls, zero-width and filler characters, invisible operators, variation selectors, interlinear
# marks and tag characters: they change or hide what a user reads.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SURROGATES = "\ud800-\udfff"
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"

_SAFE_ASCII = bytes([0x09, 0x0A, *range(0x20, 0x7F)])
_CSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,128}[ -/]{0,16}[@-~]")
_CSI_BODY = re.compile(r"[ -?]*")
_LONG_BLANKS = re.compile(r"(?m)^ {33,}|(?<=\S) {9,}|(?<=\S) {3,}$")
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c]")
_STRING_STARTS = frozenset("PX]^_")
_C1_STRING_STARTS = {"\x90": "P", "\x98": "X", "\x9d": "]", "\x9e": "^", "\x9f": "_"}
JOINERS = "\u200c\u200d"
"""Zero-width non-joiner and joiner: spelling in some scripts, part of a picture in emoji, hidden text elsewhere."""
SELECTORS = "\ufe0e\ufe0f"
"""Characters that choose between the text and the picture form of a character."""
# These ranges are Arabic with its relatives, the scripts of India, Myanmar, Khmer and Mongolian, and Arabic's presentation forms.
_JOINED_SCRIPTS = (
    (0x0600, 0x0DFF),
    (0x1000, 0x109F),
    (0x1780, 0x18AF),
    (0xFB50, 0xFDFF),
    (0xFE70, 0xFEFE),
)
MARKS_LIMIT = 12
"""The largest number of combining marks on one character: more than any script writes, and few enough for every terminal."""
# A possible mark is neither a letter, a digit nor a blank for `re`; drawings, arrows and CJK signs, which are not either and
# occur in long runs, are excluded. The middle and final letters of Hangul take no cell of their own.
_MARK_LIKE = (
    "(?:[^\\w\\s\x00-\u02ff\u2000-\u20cf\u2100-\u2cee\u2cf2-\u2d7e\u2e00-\u3029\u3030-\u3098\u309b-\ua66e\U0001f000-\U0001faff]"
    "|[\u1160-\u11ff\ud7b0-\ud7ff\u200c\u200d])"
)
_LINE_BREAKS = frozenset("\u2028\u2029\x85")


# This pattern is compiled when it is first needed, as that takes milliseconds that would delay the first paint.
@cache
def _special() -> re.Pattern[str]:
    return re.compile(f"[{_CONTROLS}{INVISIBLE}{_SURROGATES}\u2028\u2029]")


@cache
def _odd() -> re.Pattern[str]:
    """Return the pattern of other odd characters: blanks of all kinds, letters and signs that are drawn as nothing, private
    characters, and marks that strike through or surround their character.
    """
    return re.compile(
        f"[{_CONTROLS}{INVISIBLE}{_SURROGATES}\t\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2800"
        "\ue000-\uf8ff\u0334-\u0338\u0488\u0489\u20d0-\u20f0\U00013441\U00013442\U00016fe4\U0001d159]"
    )


@cache
def _many_marks() -> re.Pattern[str]:
    return re.compile(_MARK_LIKE + f"{{{MARKS_LIMIT + 1}}}")


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    CHARSET = auto()
    CSI = auto()
    STRING = auto()
    STRING_ESCAPE = auto()


# A lookup of the enum member would take noticeable time where nothing else is done.
_GROUND = _State.GROUND


def _mark(char: str) -> str:
    return f"<U+{ord(char):04X}>"


def _takes_no_cell(char: str) -> bool:
    """Return whether a character is drawn on the one before it."""
    return (
        char in JOINERS
        or category(char)[0] == "M"
        or "\u1160" <= char <= "\u11ff"
        or "\ud7b0" <= char <= "\ud7ff"
    )


def _marks_at_end(text: str) -> int:
    """Return the number of characters at the end of a text that take no cell."""
    at = len(text)
    while at and _takes_no_cell(text[at - 1]) and len(text) - at < MARKS_LIMIT:
        at -= 1
    return len(text) - at


def joins_letters(before: str) -> bool:
    """Return whether a joiner (U+200C, U+200D) after this character is spelling: the character is a letter or mark of a script that
    uses joiners.

    Some words end in a joiner, so the next character does not matter; a second joiner never has a meaning.
    """
    point = ord(before) if before else 0
    in_script = any(first <= point <= last for first, last in _JOINED_SCRIPTS)
    return in_script and category(before)[0] in "LM"


def _joins_pictures(before: str) -> bool:
    """Return whether a joiner after this character is part of an emoji, or belongs to a script that has joiners."""
    point = ord(before) if before else 0
    return point >= 0x1F000 or 0x2190 <= point <= 0x2BFF or 0x0600 <= point <= 0x0DFF


def _is_picture(before: str) -> bool:
    """Return whether a selector or joiner after this character makes a picture: emoji, signs, keys with a digit."""
    if not before:
        return False
    point = ord(before)
    return before in "#*0123456789\u00a9\u00ae" or point >= 0x1F000 or 0x2000 <= point <= 0x32FF


class Cleaner:
    """Cleans a text that arrives in pieces, split anywhere, even within a sequence or a surrogate pair.

    Feeding the pieces one after another gives exactly the result of `clean` for the whole text; memory is constant.

    Args:
        keeps_pictures: whether emoji keep their selectors and joiners. The screen shows them without; copied text has them.
    """

    __slots__ = (
        "_before",
        "_count",
        "_high",
        "_is_osc",
        "_keeps_pictures",
        "_kept",
        "_marks",
        "_skip_newline",
        "_state",
    )

    def __init__(self, *, keeps_pictures: bool = False) -> None:
        self._state = _GROUND
        self._keeps_pictures = keeps_pictures
        self._kept = ""
        self._count = 0
        self._is_osc = False
        self._skip_newline = False
        self._high = ""
        self._before = ""
        self._marks = 0

    def feed(self, text: str) -> str:
        """Return the clean text for the next piece; a possible part of an unfinished sequence is held back."""
        return self._with_few_marks(self._visible(text))

    def _with_few_marks(self, text: str) -> str:
        """Return the text without the marks that exceed the limit of their character."""
        if not text or (text.isascii() and not self._marks):
            return text
        before = self._marks
        if (before and _takes_no_cell(text[0])) or _many_marks().search(text) is not None:
            out: list[str] = []
            for char in text:
                self._marks = self._marks + 1 if _takes_no_cell(char) else 0
                if self._marks <= MARKS_LIMIT:
                    out.append(char)
            return "".join(out)
        self._marks = _marks_at_end(text)
        return text

    def _visible(self, text: str) -> str:
        if not text:
            return ""
        if self._state is _GROUND and not self._skip_newline and not self._high and _is_clean(text):
            self._before, self._kept = text[-1], ""
            return text
        out: list[str] = []
        position = 0
        end = len(text)
        while position < end:
            if self._state is _GROUND:
                position = self._ground(text, position, out)
            elif self._state is _State.STRING:
                position = self._string(text, position)
            else:
                position = self._sequence(text, position)
        return "".join(out)

    def finish(self) -> str:
        """Return the text still held back at the end of the stream; the cleaner can then be used anew."""
        rest = "\ufffd" if self._high else ""
        self.__init__(keeps_pictures=self._keeps_pictures)
        return rest

    def keeping_pictures(self) -> Cleaner:
        """Return a copy in the same state that keeps the selectors and joiners of emoji from here on."""
        other = copy(self)
        other._keeps_pictures = True
        return other

    def _ground(self, text: str, position: int, out: list[str]) -> int:
        if self._high:
            return self._second_half(text, position, out)
        if self._skip_newline:
            self._skip_newline = False
            if text[position] == "\n":
                return position + 1
        found = _special().search(text, position)
        if found is None:
            out.append(text[position:])
            self._before, self._kept = text[-1], ""
            return len(text)
        start = found.start()
        if start > position:
            out.append(text[position:start])
            self._before, self._kept = text[start - 1], ""
        return self._special(text, start, out)

    def _special(self, text: str, position: int, out: list[str]) -> int:
        char = text[position]
        if char in "\x1b\x9b":
            whole = _CSI.match(text, position)
            if whole is not None:
                return whole.end()
            self._enter(_State.ESCAPE if char == "\x1b" else _State.CSI)
        elif char in _C1_STRING_STARTS:
            self._enter_string(_C1_STRING_STARTS[char])
        elif char == "\r":
            out.append("\n")
            self._skip_newline = True
        elif char in _LINE_BREAKS:
            out.append("\n")
        elif "\ud800" <= char <= "\udbff":
            self._high = char
        elif "\udc00" <= char <= "\udfff":
            out.append("\ufffd")
        elif char >= "\xa0":
            self._invisible(char, out)
        return position + 1

    def _invisible(self, char: str, out: list[str]) -> None:
        if char in JOINERS and joins_letters(self._before):
            out.append(char)
            self._before = char
            return
        # Presentation selectors and joiners inside emoji only choose a picture. Terminals disagree on their width, so they
        # are omitted; anywhere else they are hidden text and shown.
        if char in SELECTORS or (char in JOINERS and _joins_pictures(self._before)):
            # At most one of each is kept: further ones have no visible effect.
            if self._keeps_pictures and char not in self._kept and _is_picture(self._before):
                out.append(char)
                self._kept += char
            return
        out.append(_mark(char))
        self._before, self._kept = ">", ""

    def _second_half(self, text: str, position: int, out: list[str]) -> int:
        high, self._high = self._high, ""
        low = text[position]
        if "\udc00" <= low <= "\udfff":
            code = 0x10000 + ((ord(high) - 0xD800) << 10) + ord(low) - 0xDC00
            whole = chr(code)
            if _special().match(whole):
                self._invisible(whole, out)
            else:
                out.append(whole)
                self._before, self._kept = whole, ""
            return position + 1
        out.append("\ufffd")
        return position

    def _enter(self, state: _State) -> None:
        self._state = state
        self._count = 0

    def _enter_string(self, kind: str) -> None:
        self._enter(_State.STRING)
        self._is_osc = kind == "]"

    def _sequence(self, text: str, position: int) -> int:
        char = text[position]
        if self._state is _State.ESCAPE:
            return self._escape(char, position)
        if self._state is _State.STRING_ESCAPE:
            # `ESC \` ends the string; any other escape ends it too and starts a new sequence.
            self._enter(_State.ESCAPE)
            return self._escape(char, position)
        if self._state is _State.CHARSET:
            if " " <= char <= "/" and self._count < CSI_LIMIT:
                self._count += 1
                return position + 1
            self._enter(_State.GROUND)
            return position + 1 if "0" <= char <= "~" else position
        body = _CSI_BODY.match(text, position, position + CSI_LIMIT - self._count)
        stop = body.end() if body is not None else position
        self._count += stop - position
        if self._count >= CSI_LIMIT:
            self._enter(_State.GROUND)
            return stop
        if stop == len(text):
            return stop
        self._enter(_State.GROUND)
        return stop + 1 if "@" <= text[stop] <= "~" else stop

    def _escape(self, char: str, position: int) -> int:
        if char == "[":
            self._enter(_State.CSI)
        elif char in _STRING_STARTS:
            self._enter_string(char)
        elif " " <= char <= "/":
            self._enter(_State.CHARSET)
        elif "0" <= char <= "~":
            self._enter(_State.GROUND)
        else:
            self._enter(_State.GROUND)
            return position
        return position + 1

    def _string(self, text: str, position: int) -> int:
        limit = position + STRING_LIMIT - self._count
        found = _STRING_END.search(text, position, limit)
        if found is None:
            stop = min(len(text), limit)
            self._count += stop - position
            if self._count >= STRING_LIMIT:
                self._enter(_State.GROUND)
            return stop
        stop = found.end()
        char = found.group()
        if char == "\x1b":
            self._state = _State.STRING_ESCAPE
        elif char == "\x07" and not self._is_osc:
            self._count += stop - position
        else:
            self._enter(_State.GROUND)
        return stop


def _is_clean(text: str) -> bool:
    if text.isascii():
        # Deleting the safe bytes is several times faster than searching with a character class.
        return not text.encode("ascii").translate(None, _SAFE_ASCII)
    return _special().search(text) is None


def _without_crowds(text: str) -> str:
    """Return the text of a decision with excess marks counted: `<200000 marks>`."""

    def counted(found: re.Match[str]) -> str:
        out: list[str] = []
        run = 0
        for char in found.group() + "\0":
            if char != "\0" and _takes_no_cell(char):
                run += 1
                if run <= MARKS_LIMIT:
                    out.append(char)
                continue
            if run > MARKS_LIMIT:
                out.append(f"<{run - MARKS_LIMIT} combining marks>")
            run = 0
            out.append(char)
        return "".join(out).removesuffix("\0")

    return re.sub(_MARK_LIKE + "+", counted, text)


def clean(text: str) -> str:
    """Return the text without control bytes and terminal sequences, and with invisible characters as marks like `<U+202E>`.

    Line feeds and tabs stay, other line ends become line feeds, lone surrogates become U+FFFD.
    """
    if _is_clean(text) and (text.isascii() or _many_marks().search(text) is None):
        return text
    cleaner = Cleaner()
    return cleaner.feed(text) + cleaner.finish()


def clean_pasted(text: str) -> str:
    """Return the clean text of a terminal's paste, in which a carriage return ends a line."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def without_invisible(text: str) -> str:
    """Return the text without characters that only direct how others are written, such as marks of direction and joiners."""
    if text.isascii():
        return text
    return "".join(char for char in text if category(char) != "Cf")


def clean_source(text: str) -> str:
    """Return the clean text for the clipboard: as `clean`, but emoji keep their selectors and joiners."""
    if _is_clean(text):
        return text
    cleaner = Cleaner(keeps_pictures=True)
    return cleaner.feed(text) + cleaner.finish()


def has_pictures(text: str) -> bool:
    """Return whether a text may contain emoji of which `clean` omits something."""
    if text.isascii():
        return False
    # The tests are written out, because every piece of an answer passes through here.
    return "\ufe0f" in text or "\u200d" in text or "\u200c" in text or "\ufe0e" in text


def visible(text: str) -> str:
    """Return the text for a decision: nothing is dropped, and every invisible character is a mark.

    Line feeds stay; tabs, other controls, odd blanks and private characters become `<U+0009>`, as do letters that look like
    ASCII; long runs of blanks, which could push text out of sight, become `<40 blanks>`.
    """
    if _odd().search(text):
        text = _odd().sub(lambda found: _mark(found.group()), text)
    if not text.isascii():
        # The import is here, because hardly any decision is about such a text.
        from kimi_tui.confusables import mark_confusables

        text = mark_confusables(text)
        if _many_marks().search(text) is not None:
            text = _without_crowds(text)
    if "   " in text:
        text = _LONG_BLANKS.sub(lambda found: f"<{len(found.group())} spaces>", text)
    return text


def shown_name(text: str) -> str:
    """Return the name or path of a file as one row; characters that could make it look like another name become marks, as in
    `visible`.
    """
    name = visible(text).replace("\n", "<U+000A>")
    if not name.startswith(" ") and not name.endswith(" "):
        return name
    n_before, n_behind = len(name) - len(name.lstrip(" ")), len(name) - len(name.rstrip(" "))
    blank = "<U+0020>"
    return f"{blank * n_before}{name.strip(' ')}{blank * (n_behind if name.strip(' ') else 0)}"


def one_line(text: str) -> str:
    """Return the clean text as one line: every run of blanks and line ends becomes one blank, with none at the ends."""
    return " ".join(clean(text).split())


def expand_tabs(line: str) -> str:
    """Return one line with its tabs expanded to the next multiple of four."""
    return line.expandtabs(4) if "\t" in line else line
