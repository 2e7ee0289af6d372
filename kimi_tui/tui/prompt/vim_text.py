"""Places in a text as vim finds them: lines, words, paragraphs, brackets, and the objects that they make. This module has no cursor.

A place is an index into the text; a line feed, and the end of the text, is the place after the last character of its line.
Rules that look odd are vim's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rich.cells import cell_len, get_character_cell_size

Kind = Literal["exclusive", "inclusive", "lines"]
"""Whether a motion includes its last place, or whole lines."""
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OBJECTS = {"(": "(", ")": "(", "b": "(", "[": "[", "]": "[", "{": "{", "}": "{", "B": "{"}
_SCRIPTS = ((0x3040, 0x309F), (0x30A0, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
"""Ranges of characters of scripts each of which forms words of its own."""
WHOLES = 0x100000
"""The first of the characters that stand for chips; each is a word of its own."""


class TextRange(NamedTuple):
    """The range from the cursor to a motion's end, or of a text object."""

    to: int
    kind: Kind = "exclusive"
    start: int | None = None


class VimText:
    """A text with vim's lookups of places in it.

    Attributes:
        text: the whole text.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def start_of(self, at: int) -> int:
        """Return the begin of the line of a place."""
        return self.text.rfind("\n", 0, at) + 1

    def end_of(self, at: int) -> int:
        """Return the end of the line of a place."""
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found

    def cells_before(self, at: int) -> int:
        """Return the number of cells before a place in its line."""
        return cell_len(self.text[self.start_of(at) : at])

    def in_cell(self, start: int, cell: int) -> int:
        """Return the character of the line beginning at `start` that is drawn in a cell; the line's end if there is none."""
        end = self.end_of(start)
        for place in range(start, end):
            width = get_character_cell_size(self.text[place])
            if cell < width:
                return place
            cell -= width
        return end

    def line_start(self, line: int) -> int:
        """Return the begin of a line, by its number from 0."""
        at = 0
        for _ in range(line):
            at = self.end_of(at) + 1
        return min(at, len(self.text))

    def line_of(self, at: int) -> int:
        return self.text.count("\n", 0, at)

    def inked(self, at: int) -> int:
        """Return the first character of a line that is no space, or its last one."""
        start, end = self.start_of(at), self.end_of(at)
        while start < end and self.text[start] in " \t":
            start += 1
        return max(self.start_of(at), end - 1) if start == end else start

    def is_in_indent(self, at: int) -> bool:
        return not self.text[self.start_of(at) : at].strip(" \t")

    def is_end(self, at: int) -> bool:
        return at >= len(self.text) or self.text[at] == "\n"

    def is_empty_line(self, at: int) -> bool:
        return self.is_end(at) and self.start_of(at) == at

    def class_of(self, at: int, *, big: bool) -> int:
        """Return the class of the character at a place: 0 for spaces and the end of a line; letters and signs have different ones."""
        if self.is_end(at):
            return 0
        char = self.text[at]
        if char in " \t":
            return 0
        if big:
            return 1
        code = ord(char)
        if code >= WHOLES:
            return 3
        for kind, (first, last) in enumerate(_SCRIPTS, 4):
            if first <= code <= last:
                return kind
        return 2 if char == "_" or char.isalnum() else 1

    def step_on(self, at: int) -> tuple[int, int]:
        """Return the next place, and its kind: 0 in the same line, 2 after its last character, 1 in the next line, -1 for none."""
        if self.is_end(at):
            return (at, -1) if at >= len(self.text) else (at + 1, 1)
        return at + 1, 2 if self.is_end(at + 1) else 0

    def word_on(self, at: int, count: int, *, big: bool, to_end: bool) -> tuple[int, bool]:
        """Return the target of `w`, and whether there are so many words; with `to_end` the last word ends at the end of its line."""
        while count > 0:
            count -= 1
            kind = self.class_of(at, big=big)
            is_last = self.end_of(at) == len(self.text)
            at, step = self.step_on(at)
            if step == -1 or (step >= 1 and is_last):
                return at, False
            if step >= 1 and to_end and count == 0:
                return at, True
            if kind:
                while self.class_of(at, big=big) == kind:
                    at, step = self.step_on(at)
                    if step == -1 or (step >= 1 and to_end and count == 0):
                        return at, True
            while self.class_of(at, big=big) == 0:
                if self.is_empty_line(at):
                    break
                is_last = self.end_of(at) == len(self.text) or (to_end and count == 0)
                at, step = self.step_on(at)
                if step == -1 or (step >= 1 and is_last):
                    return at, True
        return at, True

    def word_end(
        self, at: int, count: int, *, big: bool, stop: bool = False, empty: bool = False
    ) -> tuple[int, bool]:
        """Return the target of `e`, and whether it was reached; with `stop` stay at the end of a word, with `empty` stop on
        an empty line.
        """
        for _ in range(count):
            kind = self.class_of(at, big=big)
            at, step = self.step_on(at)
            if step == -1:
                return at, False
            if kind and self.class_of(at, big=big) == kind:
                at, reached = self._skip(at, kind, 1, big=big)
                if not reached:
                    return at, False
            elif not stop or not kind:
                while self.class_of(at, big=big) == 0:
                    if empty and self.is_empty_line(at):
                        return at, True
                    at, step = self.step_on(at)
                    if step == -1:
                        return at, False
                at, reached = self._skip(at, self.class_of(at, big=big), 1, big=big)
                if not reached:
                    return at, False
            at -= 1
            stop = False
        return at, True

    def _skip(self, at: int, kind: int, step: int, *, big: bool) -> tuple[int, bool]:
        while self.class_of(at, big=big) == kind:
            if step > 0:
                at, moved = self.step_on(at)
                if moved == -1:
                    return at, False
            elif at == 0:
                return at, False
            else:
                at -= 1
        return at, True

    def word_back(self, at: int, count: int, *, big: bool) -> tuple[int, bool]:
        """Return the target of `b`, and whether there are so many words before."""
        for _ in range(count):
            if at == 0:
                return at, False
            at -= 1
            while self.class_of(at, big=big) == 0:
                if self.is_empty_line(at):
                    break
                if at == 0:
                    return 0, True
                at -= 1
            else:
                at, reached = self._skip(at, self.class_of(at, big=big), -1, big=big)
                if not reached:
                    return at, True
                at += 1
        return at, True

    def after_paragraphs(self, at: int, count: int, step: int) -> TextRange | None:
        """Return the empty line after so many paragraphs, or before them."""
        lines = self.text.split("\n")
        line = self.line_of(at)
        for left in range(count - 1, -1, -1):
            is_first, skipped = True, False
            while True:
                skipped = skipped or bool(lines[line])
                if not is_first and skipped and not lines[line]:
                    break
                is_first = False
                line += step
                if not 0 <= line < len(lines):
                    if left:
                        return None
                    line -= step
                    break
        at = self.line_start(line)
        if step > 0 and line == len(lines) - 1 and lines[line]:
            return TextRange(len(self.text) - 1, "inclusive")
        return TextRange(at)

    def matching(self, at: int) -> int | None:
        """Return the counterpart of the next bracket of the line."""
        end = self.end_of(at)
        while at < end and self.text[at] not in "()[]{}":
            at += 1
        if at == end:
            return None
        char = self.text[at]
        if char in _PAIRS:
            return self._bracket(at, char, _PAIRS[char], 1)
        other = next(one for one, two in _PAIRS.items() if two == char)
        return self._bracket(at, char, other, -1)

    def _bracket(self, at: int, char: str, other: str, step: int) -> int | None:
        depth = 0
        while 0 <= at < len(self.text):
            if self.text[at] == char:
                depth += 1
            elif self.text[at] == other:
                depth -= 1
                if depth == 0:
                    return at
            at += step
        return None

    def found_object(self, at: int, around: bool, key: str, count: int) -> TextRange | None:
        """Return the range of a text object, such as `iw` or `a"`."""
        if key in "wW":
            return self._word_object(at, around, count, big=key == "W")
        if key in "\"'`":
            return self._quoted(at, around, key)
        if key in _OBJECTS:
            return self._block(at, around, _OBJECTS[key], count)
        return self._paragraph(at, around, count) if key == "p" else None

    def _word_object(self, at: int, around: bool, count: int, *, big: bool) -> TextRange | None:
        kind = self.class_of(at, big=big)
        start = at
        while start > self.start_of(at) and self.class_of(start - 1, big=big) == kind:
            start -= 1
        kind_of_end: Kind = "inclusive"
        with_blanks = False
        at = start
        is_first = True
        while count > 0:
            count -= 1
            if not is_first:
                at, step = self._on_over(at)
                if step == -1:
                    return None
            if (self.class_of(at, big=big) == 0) == around:
                to, reached = self.word_end(at, 1, big=big, stop=True, empty=True)
                if not reached and around:
                    return None
                at = to if reached else max(start, self.end_of(at) - 1)
                kind_of_end = "inclusive"
            else:
                at, reached = self.word_on(at, 1, big=big, to_end=True)
                if not reached and around and not is_first:
                    return None
                if self.start_of(at) == at and at > start:
                    at -= 1
                    if not self.is_empty_line(at):
                        at -= 1 if self.is_end(at) and at > start else 0
                elif at > self.start_of(at):
                    at -= 1
                else:
                    kind_of_end = "exclusive"
                with_blanks = around
            is_first = False
        if with_blanks and self.class_of(at, big=big):
            line = self.start_of(start)
            first = start
            while first > line and self.class_of(first - 1, big=big) == 0:
                first -= 1
            if first > line:
                start = first
        if self.is_empty_line(at):
            kind_of_end = "exclusive"
        return TextRange(at, kind_of_end, start)

    def _on_over(self, at: int) -> tuple[int, int]:
        """Return the next place that is not after the last character of a line."""
        at, step = self.step_on(at)
        if step >= 1 and self.is_end(at) and at > self.start_of(at):
            return self.step_on(at)
        return at, step

    def _quoted(self, at: int, around: bool, quote: str) -> TextRange | None:
        start, end = self.start_of(at), self.end_of(at)

        def following(at: int) -> int:
            while at < end:
                if self.text[at] == "\\":
                    at += 1
                elif self.text[at] == quote:
                    return at
                at += 1
            return -1

        if at < end and self.text[at] == quote:
            first = following(start)
            while True:
                last = following(first + 1) if first >= 0 else -1
                if last < 0:
                    return None
                if first <= at <= last:
                    break
                first = following(last + 1)
        else:
            first = at
            while first > start:
                first -= 1
                n_signs = 0
                while first - n_signs > start and self.text[first - n_signs - 1] == "\\":
                    n_signs += 1
                if n_signs % 2:
                    first -= n_signs
                elif self.text[first] == quote:
                    break
            if first >= end or self.text[first] != quote or first == at:
                first = following(at)
            if first < 0 or (last := following(first + 1)) < 0:
                return None
        if not around:
            return TextRange(last, "exclusive", first + 1)
        stop = last + 1
        if stop < end and self.text[stop] in " \t":
            while stop < end and self.text[stop] in " \t":
                stop += 1
        else:
            while first > start and self.text[first - 1] in " \t":
                first -= 1
        return TextRange(stop, "exclusive", first)

    def _block(self, at: int, around: bool, opening: str, count: int) -> TextRange | None:
        closing = _PAIRS[opening]
        char = self.text[at : at + 1]
        first: int | None = at
        if char == closing:
            first = self._bracket(at, closing, opening, -1)
        elif char != opening:
            first = self._enclosing(at, opening, closing)
            if first is None and (following := self.text.find(opening, at)) >= 0:
                first = following
        for _ in range(count - 1):
            first = None if first is None else self._enclosing(first, opening, closing)
        last = None if first is None else self._bracket(first, opening, closing, 1)
        if first is None or last is None:
            return None
        if around:
            return TextRange(last, "inclusive", first)
        start = first + 1
        if self.is_end(start) and start < last:
            start += 1
        stop = last
        if opening == "{" and self.is_in_indent(stop) and self.start_of(stop) > start:
            return TextRange(self.start_of(stop), "exclusive", start)
        return (
            TextRange(stop, "exclusive", start)
            if start < stop
            else TextRange(start, "exclusive", start)
        )

    def _enclosing(self, at: int, opening: str, closing: str) -> int | None:
        depth = 0
        at -= 1
        while at >= 0:
            if self.text[at] == closing:
                depth += 1
            elif self.text[at] == opening:
                if depth == 0:
                    return at
                depth -= 1
            at -= 1
        return None

    def _paragraph(self, at: int, around: bool, count: int) -> TextRange | None:
        lines = self.text.split("\n")
        blank = [not line.strip(" \t") for line in lines]
        here = self.line_of(at)
        first, is_blank, last = here, blank[here], len(lines) - 1
        while first and blank[first - 1] == is_blank:
            first -= 1
        end = first
        while end <= last and blank[end]:
            end += 1
        end -= 1
        left = count - (1 if not around and is_blank else 0)
        while left > 0:
            left -= 1
            if end >= last:
                return None
            takes_blank = blank[end + 1]
            if around or not takes_blank:
                end += 1
                while end < last and not blank[end + 1]:
                    end += 1
            if left == 0 and is_blank and around:
                break
            if around or takes_blank:
                while end < last and blank[end + 1]:
                    end += 1
        if around and not is_blank and not blank[end]:
            while first and blank[first - 1]:
                first -= 1
        return TextRange(self.line_start(end), "lines", self.line_start(first))
