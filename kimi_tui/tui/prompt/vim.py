"""vim's way of editing a text, as a model that knows no screen: keys in, text and cursor out.

A place is an index into the text; a line feed, and the end of the text, is the place behind the last character of its
line. What the words, objects and operators do to the last character is vim's, whose rules are often not those that its
manual tells; the tests hold the two side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Mode = Literal["insert", "normal", "visual", "lines"]
Outcome = Literal["", "earlier", "later", "escape"]
"""What a key asks of whoever has the text: another one of what was sent, or what Esc does where nothing is under way."""
_Kind = Literal["exclusive", "inclusive", "lines"]
_Keys = Generator[None, str, None]

END_OF_LINE = 1 << 30
"""The column that is kept after `$`."""
MOST = 1 << 20
"""The highest count, and the most characters that a command may make of the text."""
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OBJECTS = {"(": "(", ")": "(", "b": "(", "[": "[", "]": "[", "{": "{", "}": "{", "B": "{"}
_FINDS = "fFtT"
_ALIKE = {
    "left": "h",
    "right": "l",
    "down": "j",
    "up": "k",
    "home": "0",
    "end": "$",
    "delete": "x",
    "space": " ",
}
"""Keys by the letters that do the same."""
_SCRIPTS = ((0x3040, 0x309F), (0x30A0, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))
"""Characters that belong to no word but one of their own kind."""
WHOLES = 0x100000
"""From this character on each stands for something that is one piece."""


class _Move(NamedTuple):
    """Where a motion leads, or from where to where an object reaches."""

    to: int
    kind: _Kind = "exclusive"
    start: int | None = None


class _Region(NamedTuple):
    """What an operator acts on: from `start` to `end` (exclusive), or all of these lines without the feed of the last."""

    start: int
    end: int
    is_lines: bool = False


@dataclass(slots=True)
class _Change:
    """A command that changes the text, so that `.` can do it again.

    Attributes:
        act: does it so many times.
        count: what was said before it; None for nothing.
        typed: what was written in insert mode after it, and how much before it was deleted.
        is_counted: the count says how often that is written, and not how often it acts.
        in_lines: each time in a line of its own.
    """

    act: Callable[[int | None], None]
    count: int | None
    typed: tuple[int, str] = (0, "")
    is_counted: bool = False
    in_lines: bool = False

    def more(self, times: int) -> str:
        """What is written besides the first time."""
        return (("\n" if self.in_lines else "") + self.typed[1]) * (times - 1)


class Vim:
    """A text with a cursor.

    Attributes:
        text: all of it.
        at: where the cursor is.
        mode: what keys mean now.
        anchor: where the selection begins, in the two visual modes; it ends at the cursor, with that.
    """

    def __init__(self, text: str = "", at: int = 0, mode: Mode = "insert") -> None:
        self.text = text
        self.at = at
        self.mode: Mode = mode
        self.anchor = at
        self.register = ""
        """What was deleted or copied last."""
        self.is_register_lines = False
        """Whether those are whole lines."""
        self._wanted: int | None = None
        """The column that `j` and `k` go to; None for the one of the cursor."""
        self._found: tuple[str, str] | None = None
        """The last of `f F t T`, and its character."""
        self._change: _Change | None = None
        self._writing: _Change | None = None
        """The command that began what is being written."""
        self._before: tuple[str, int] = (text, at)
        """What stood here before the command that is under way."""
        self._begun: tuple[str, int] = (text, at)
        """What stood here when insert mode began."""
        self._undone: list[tuple[str, int]] = []
        self._undo: list[tuple[str, int]] = []
        self._outcome: Outcome = ""
        self.is_pending = False
        """Whether a command is half written."""
        self._keys = self._command()
        next(self._keys)

    # --- from outside

    def load(self, text: str, at: int) -> None:
        """Take over what stands in the field; in insert mode it is written there, and elsewhere others may change it."""
        if text != self.text and self.mode != "insert":
            self._undo.append((self.text, self.at))
            self._undone.clear()
            self.mode = "normal"
            self._renew()
            self._before = (text, at)
        if (text, at) != (self.text, self.at):
            self._wanted = None
        self.text, self.at = text, at
        if self.mode == "normal":
            self._stay_in_line()

    def forget(self) -> None:
        """Another text stands here: nothing of the last one can be undone."""
        self._undo.clear()
        self._undone.clear()
        self._renew()
        self._before = self._begun = (self.text, self.at)
        self._writing = None

    @property
    def can_repeat(self) -> bool:
        """Whether there is a change that `.` would do again."""
        return self._change is not None

    def begin_insert(self) -> None:
        """What comes next is written where the cursor is."""
        self._renew()
        self._insert(_Change(lambda _: None, None))

    def press(self, key: str) -> Outcome:
        """Take a key: a character, or the name of another one."""
        self._outcome = ""
        if self.mode == "insert":
            self._type(key)
            return ""
        if key == "escape":
            if not self.is_pending and self.mode == "normal":
                return "escape"
            self.mode = "normal"
            self._renew()
            self._stay_in_line()
            return ""
        try:
            self._keys.send(_ALIKE.get(key, key))
        except StopIteration:
            self._renew()
            self._done()
        return self._outcome

    def leave_insert(self) -> None:
        """Esc in insert mode: what was written is complete."""
        change, self._writing = self._writing, None
        self.mode = "normal"
        typed = self._typed()
        if change is not None and typed is not None:
            change.typed = typed
            if change.is_counted and change.count:
                self._write(change.more(self._at_most(change)))
            self._change = change
        if self.at > self._start(self.at):
            self.at -= 1
        self._wanted = None
        self._stay_in_line()
        self._remember()

    # --- insert mode

    def _type(self, key: str) -> None:
        if key == "escape":
            self.leave_insert()
        elif key == "backspace":
            if self.at:
                self._replace(self.at - 1, self.at, "")
                self.at -= 1
        elif key == "enter" or len(key) == 1:
            written = "\n" if key == "enter" else key
            self._replace(self.at, self.at, written)
            self.at += 1

    def _typed(self) -> tuple[int, str] | None:
        """How much before the cursor was deleted and what was written since insert mode began; None where it was elsewhere."""
        before, at = self._begun
        rest = before[at:]
        if not self.text.endswith(rest) or self.at != len(self.text) - len(rest):
            return None
        head = self.text[: self.at]
        kept = 0
        most = min(len(head), at)
        while kept < most and head[kept] == before[kept]:
            kept += 1
        return at - kept, head[kept:]

    def _insert(self, change: _Change) -> None:
        self.mode = "insert"
        self._writing = change
        self._begun = (self.text, self.at)

    # --- undo

    def _remember(self) -> None:
        if self.text != self._before[0]:
            self._undo.append(self._before)
            self._undone.clear()
            del self._undo[:-200]
        self._before = (self.text, self.at)

    def _go_back(self, stack: list[tuple[str, int]], other: list[tuple[str, int]]) -> bool:
        if not stack:
            return False
        text, at = stack.pop()
        old = self.text
        other.append((old, at))
        self.text = text
        old_lines, lines = old.split("\n"), text.split("\n")
        top = 0
        while top < min(len(old_lines), len(lines)) - 1 and old_lines[top] == lines[top]:
            top += 1
        place = self._line_start(top)
        at = min(at, len(text))
        if self._start(at) == place or (top and self._start(at) == self._line_start(top - 1)):
            self.at = at
        else:
            self.at = self._inked(place)
        self._stay_in_line()
        return True

    # --- the text

    def _replace(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]

    def _start(self, at: int) -> int:
        """Where the line of a place begins."""
        return self.text.rfind("\n", 0, at) + 1

    def _end(self, at: int) -> int:
        """Where the line of a place ends."""
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found

    def _line_start(self, line: int) -> int:
        """Where a line begins, by its number from 0."""
        at = 0
        for _ in range(line):
            at = self._end(at) + 1
        return min(at, len(self.text))

    def _line_of(self, at: int) -> int:
        return self.text.count("\n", 0, at)

    def _inked(self, at: int) -> int:
        """The first character of a line that is no blank, or its last one."""
        start, end = self._start(at), self._end(at)
        while start < end and self.text[start] in " \t":
            start += 1
        return max(self._start(at), end - 1) if start == end else start

    def _is_in_indent(self, at: int) -> bool:
        return not self.text[self._start(at) : at].strip(" \t")

    def _is_end(self, at: int) -> bool:
        return at >= len(self.text) or self.text[at] == "\n"

    def _is_empty_line(self, at: int) -> bool:
        return self._is_end(at) and self._start(at) == at

    def _stay_in_line(self) -> None:
        """The cursor stands on a character, where the line has one."""
        self.at = min(self.at, len(self.text))
        if self._is_end(self.at) and self.at > self._start(self.at):
            self.at -= 1

    def _class(self, at: int, *, big: bool) -> int:
        """What kind of character stands at a place: 0 for blanks and the end of a line, and for words others than for signs."""
        if self._is_end(at):
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

    # --- steps, as vim takes them: on the way the cursor may be behind the last character of a line

    def _on(self, at: int) -> tuple[int, int]:
        """The next place, and what that is: 0 in the line, 2 behind its last character, 1 in the next one, -1 none."""
        if self._is_end(at):
            return (at, -1) if at >= len(self.text) else (at + 1, 1)
        return at + 1, 2 if self._is_end(at + 1) else 0

    def _word_on(self, at: int, count: int, *, big: bool, to_end: bool) -> tuple[int, bool]:
        """`w`; with `to_end` the last of them stops at the end of its line. Whether it got there."""
        while count > 0:
            count -= 1
            kind = self._class(at, big=big)
            is_last = self._end(at) == len(self.text)
            at, step = self._on(at)
            if step == -1 or (step >= 1 and is_last):
                return at, False
            if step >= 1 and to_end and count == 0:
                return at, True
            if kind:
                while self._class(at, big=big) == kind:
                    at, step = self._on(at)
                    if step == -1 or (step >= 1 and to_end and count == 0):
                        return at, True
            while self._class(at, big=big) == 0:
                if self._is_empty_line(at):
                    break
                is_last = self._end(at) == len(self.text) or (to_end and count == 0)
                at, step = self._on(at)
                if step == -1 or (step >= 1 and is_last):
                    return at, True
        return at, True

    def _word_end(
        self, at: int, count: int, *, big: bool, stop: bool = False, empty: bool = False
    ) -> tuple[int, bool]:
        """`e`; with `stop` it stays where it is at the end of one already, with `empty` it stops on an empty line."""
        for _ in range(count):
            kind = self._class(at, big=big)
            at, step = self._on(at)
            if step == -1:
                return at, False
            if kind and self._class(at, big=big) == kind:
                at, reached = self._skip(at, kind, 1, big=big)
                if not reached:
                    return at, False
            elif not stop or not kind:
                while self._class(at, big=big) == 0:
                    if empty and self._is_empty_line(at):
                        return at, True
                    at, step = self._on(at)
                    if step == -1:
                        return at, False
                at, reached = self._skip(at, self._class(at, big=big), 1, big=big)
                if not reached:
                    return at, False
            at -= 1
            stop = False
        return at, True

    def _skip(self, at: int, kind: int, step: int, *, big: bool) -> tuple[int, bool]:
        while self._class(at, big=big) == kind:
            if step > 0:
                at, moved = self._on(at)
                if moved == -1:
                    return at, False
            elif at == 0:
                return at, False
            else:
                at -= 1
        return at, True

    def _word_back(self, at: int, count: int, *, big: bool) -> tuple[int, bool]:
        """`b`, and whether there are so many words before."""
        for _ in range(count):
            if at == 0:
                return at, False
            at -= 1
            while self._class(at, big=big) == 0:
                if self._is_empty_line(at):
                    break
                if at == 0:
                    return 0, True
                at -= 1
            else:
                at, reached = self._skip(at, self._class(at, big=big), -1, big=big)
                if not reached:
                    return at, True
                at += 1
        return at, True

    # --- motions

    def _vertical(self, count: int) -> int | None:
        """So many lines below, or above; None where there is none."""
        line = self._line_of(self.at)
        last = self.text.count("\n")
        target = min(max(0, line + count), last)
        if target == line:
            return None
        if self._wanted is None:
            self._wanted = self.at - self._start(self.at)
        start = self._line_start(target)
        end = self._end(start)
        over = self.mode in ("visual", "lines")
        return min(start + self._wanted, end if over else max(start, end - 1))

    def _brace(self, count: int, step: int) -> _Move | None:
        """The empty line after so many paragraphs, or before."""
        lines = self.text.split("\n")
        line = self._line_of(self.at)
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
        at = self._line_start(line)
        if step > 0 and line == len(lines) - 1 and lines[line]:
            return _Move(len(self.text) - 1, "inclusive")
        return _Move(at)

    def _matching(self, at: int) -> int | None:
        """Where the bracket that follows has its other half."""
        end = self._end(at)
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

    def _find(self, key: str, char: str, count: int, *, again: bool = False) -> _Move | None:
        step = 1 if key in "ft" else -1
        start, end = self._start(self.at), self._end(self.at)
        at = self.at
        stops = not (again and count == 1 and key in "tT")
        for _ in range(count):
            while True:
                at += step
                if not start <= at < end:
                    return None
                if self.text[at] == char and stops:
                    break
                stops = True
        if key in "tT":
            at -= step
        return _Move(at, "inclusive" if step > 0 else "exclusive")

    def _is_motion(self, key: str) -> bool:
        return key in "hljkwbeWBE0^$gGfFtT;,%{} " or key == "backspace"

    def _motion(self, key: str, more: str, count: int | None, op: str = "") -> _Move | None:
        """Where a motion leads from the cursor; None where it leads nowhere.

        Args:
            key: which.
            more: the character behind it, for those that take one.
            count: how often.
            op: the operator that waits for it.
        """
        n = count or 1
        at = self.at
        start, end = self._start(at), self._end(at)
        is_visual = self.mode in ("visual", "lines")
        match key:
            case "h":
                return _Move(max(start, at - n)) if at > start or op else None
            case "l":
                last = end if is_visual else max(start, end - 1)
                to = min(at + n, last)
                if op and at + n > last and end > start:
                    return _Move(last, "inclusive")
                return _Move(to) if to > at or op else None
            case "backspace":
                return _Move(max(0, at - n)) if at else None
            case " ":
                return self._space(n, op)
            case "j" | "k":
                to = self._vertical(n if key == "j" else -n)
                if to is None and not op and not is_visual:
                    self._outcome = "later" if key == "j" else "earlier"
                return None if to is None else _Move(to, "lines")
            case "w" | "W":
                return self._word_motion(n, op, big=key == "W")
            case "e" | "E":
                to, reached = self._word_end(at, n, big=key == "E")
                return self._ended(to, reached, op, "inclusive")
            case "b" | "B":
                to, reached = self._word_back(at, n, big=key == "B")
                return _Move(to) if reached or (to != at and not op) else None
            case "0":
                return _Move(start)
            case "^":
                return _Move(self._inked(at))
            case "$":
                return self._to_line_end(n)
            case "G" | "g":
                last_line = self.text.count("\n")
                default = last_line + 1 if key == "G" else 1
                return _Move(
                    self._inked(self._line_start(min(count or default, last_line + 1) - 1)), "lines"
                )
            case "f" | "F" | "t" | "T":
                self._found = (key, more)
                return self._find(key, more, n)
            case ";" | ",":
                if self._found is None:
                    return None
                last_key, char = self._found
                again = last_key if key == ";" else last_key.swapcase()
                return self._find(again, char, n, again=True)
            case "%":
                match_at = self._matching(at)
                return None if match_at is None or count else _Move(match_at, "inclusive")
            case "{" | "}":
                return self._brace(n, 1 if key == "}" else -1)
            case _:
                return None

    def _space(self, count: int, op: str) -> _Move | None:
        """So many characters on, into the next lines too."""
        at = self.at
        for _ in range(count):
            if self._is_end(at) or (self._is_end(at + 1) and not op):
                if self._end(at) == len(self.text):
                    break
                at = self._end(at) + 1
            else:
                at += 1
        return _Move(at) if at != self.at else None

    def _word_motion(self, count: int, op: str, *, big: bool) -> _Move | None:
        if op == "c" and self._class(self.at, big=big):
            # What is changed of a word is never the blanks behind it.
            to, reached = self._word_end(self.at, count, big=big, stop=True)
            return self._ended(to, reached, op, "inclusive")
        to, reached = self._word_on(self.at, count, big=big, to_end=bool(op))
        return self._ended(to, reached, op, "exclusive")

    def _ended(self, to: int, reached: bool, op: str, kind: _Kind) -> _Move | None:
        """A move along words: behind the last character of a line it stands on that instead, and takes it along."""
        is_visual = self.mode in ("visual", "lines")
        if to > self.at and not is_visual and self._is_end(to) and to > self._start(to):
            return _Move(to - 1, "inclusive")
        return _Move(to, kind) if reached or op or to != self.at else None

    def _to_line_end(self, count: int) -> _Move | None:
        at = self.at
        for _ in range(count - 1):
            if self._end(at) == len(self.text):
                break
            at = self._end(at) + 1
        if count > 1 and self._line_of(at) == self._line_of(self.at):
            return None
        self._wanted = END_OF_LINE
        end, start = self._end(at), self._start(at)
        over = self.mode in ("visual", "lines")
        return _Move(end if over else max(start, end - 1), "inclusive")

    # --- objects

    def _object(self, around: bool, key: str, count: int) -> _Move | None:
        """What `iw`, `a"` and the like stand for."""
        if key in "wW":
            return self._word_object(around, count, big=key == "W")
        if key in "\"'`":
            return self._quoted(around, key)
        if key in _OBJECTS:
            return self._block(around, _OBJECTS[key], count)
        return self._paragraph(around, count) if key == "p" else None

    def _word_object(self, around: bool, count: int, *, big: bool) -> _Move | None:
        at = self.at
        kind = self._class(at, big=big)
        start = at
        while start > self._start(at) and self._class(start - 1, big=big) == kind:
            start -= 1
        kind_of_end: _Kind = "inclusive"
        with_blanks = False
        at = start
        is_first = True
        while count > 0:
            count -= 1
            if not is_first:
                at, step = self._on_over(at)
                if step == -1:
                    return None
            if (self._class(at, big=big) == 0) == around:
                to, reached = self._word_end(at, 1, big=big, stop=True, empty=True)
                if not reached and around:
                    return None
                at = to if reached else max(start, self._end(at) - 1)
                kind_of_end = "inclusive"
            else:
                at, reached = self._word_on(at, 1, big=big, to_end=True)
                if not reached and around and not is_first:
                    return None
                if self._start(at) == at and at > start:
                    at -= 1
                    if not self._is_empty_line(at):
                        at -= 1 if self._is_end(at) and at > start else 0
                elif at > self._start(at):
                    at -= 1
                else:
                    kind_of_end = "exclusive"
                with_blanks = around
            is_first = False
        if with_blanks and self._class(at, big=big):
            line = self._start(start)
            first = start
            while first > line and self._class(first - 1, big=big) == 0:
                first -= 1
            if first > line:
                start = first
        if self._is_empty_line(at):
            kind_of_end = "exclusive"
        return _Move(at, kind_of_end, start)

    def _on_over(self, at: int) -> tuple[int, int]:
        """The next place, but not the one behind the last character of a line."""
        at, step = self._on(at)
        if step >= 1 and self._is_end(at) and at > self._start(at):
            return self._on(at)
        return at, step

    def _quoted(self, around: bool, quote: str) -> _Move | None:
        start, end = self._start(self.at), self._end(self.at)

        def following(at: int) -> int:
            while at < end:
                if self.text[at] == "\\":
                    at += 1
                elif self.text[at] == quote:
                    return at
                at += 1
            return -1

        at = self.at
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
            return _Move(last, "exclusive", first + 1)
        stop = last + 1
        if stop < end and self.text[stop] in " \t":
            while stop < end and self.text[stop] in " \t":
                stop += 1
        else:
            while first > start and self.text[first - 1] in " \t":
                first -= 1
        return _Move(stop, "exclusive", first)

    def _block(self, around: bool, opening: str, count: int) -> _Move | None:
        closing = _PAIRS[opening]
        at = self.at
        char = self.text[at : at + 1]
        first: int | None = at
        if char == closing:
            first = self._bracket(at, closing, opening, -1)
        elif char != opening:
            first = self._enclosing(at, opening, closing)
        for _ in range(count - 1):
            first = None if first is None else self._enclosing(first, opening, closing)
        last = None if first is None else self._bracket(first, opening, closing, 1)
        if first is None or last is None:
            return None
        if around:
            return _Move(last, "inclusive", first)
        start = first + 1
        if self._is_end(start) and start < last:
            start += 1
        stop = last
        if opening == "{" and self._is_in_indent(stop) and self._start(stop) > start:
            return _Move(self._start(stop), "exclusive", start)
        return _Move(stop, "exclusive", start) if start < stop else _Move(start, "exclusive", start)

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

    def _paragraph(self, around: bool, count: int) -> _Move | None:
        lines = self.text.split("\n")
        blank = [not line.strip(" \t") for line in lines]
        here = self._line_of(self.at)
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
        return _Move(self._line_start(end), "lines", self._line_start(first))

    # --- operators

    def _region(self, move: _Move, op: str) -> _Region:
        """What an operator acts on that was given a motion."""
        origin = self.at if move.start is None else move.start
        start, end = sorted((origin, move.to))
        if move.kind == "lines":
            return _Region(self._start(start), self._end(end), is_lines=True)
        if move.kind == "inclusive":
            end = min(end + 1, self._end(end))
        elif end > start and self._start(end) == end and self._line_of(end) > self._line_of(start):
            end -= 1
            if self._is_in_indent(start):
                return _Region(self._start(start), self._end(end), is_lines=True)
        is_long = "\n" in self.text[start:end]
        if op == "d" and is_long and self._is_in_indent(start):
            rest = self.text[end : self._end(end)]
            if not rest.strip(" \t"):
                return _Region(self._start(start), self._end(end), is_lines=True)
        return _Region(start, end)

    @property
    def selected(self) -> tuple[int, int]:
        """What is selected in a visual mode: from the first place to behind the last one."""
        region = self._selection()
        return region.start, region.end

    def _selection(self) -> _Region:
        start, end = sorted((self.anchor, self.at))
        if self.mode == "lines":
            return _Region(self._start(start), self._end(end), is_lines=True)
        return _Region(start, min(end + 1, len(self.text)))

    def _yank(self, region: _Region) -> None:
        self.register = self.text[region.start : region.end]
        self.is_register_lines = region.is_lines

    def _operate(self, op: str, region: _Region) -> None:
        """Delete, change or copy; the cursor is where it is left."""
        start, end, is_lines = region
        if op == "y":
            self._yank(region)
            return
        if start < end or is_lines:
            self._yank(region)
        if op == "d" and is_lines:
            has_next = end < len(self.text)
            self._replace(
                start if has_next else max(0, start - 1), min(len(self.text), end + 1), ""
            )
            self.at = self._inked(min(start if has_next else max(0, start - 1), len(self.text)))
            return
        self._replace(start, end, "")
        self.at = start

    def _apply(self, op: str, move: _Move) -> None:
        region = self._region(move, op)
        if op == "y":
            origin = self.at if move.start is None else move.start
            self._yank(region)
            self.at = min(origin, move.to)
        else:
            self._operate(op, region)

    def _changed(self, act: Callable[[int | None], None], count: int | None) -> None:
        """Carry out a command that changes the text, and keep it for `.`."""
        change = _Change(act, count)
        act(count)
        if self.mode == "insert":
            self._insert(change)
        else:
            self._change = change

    def _operator(self, op: str, key: str, more: str, count: int | None) -> None:
        """An operator with its motion, object or itself."""
        if not self._takes(op, key, more, count):
            return
        if op == "y":
            self._do_operator(op, key, more, count)
            return
        self._changed(lambda n: self._do_operator(op, key, more, n or count), count)

    def _takes(self, op: str, key: str, more: str, count: int | None) -> bool:
        at, wanted, found = self.at, self._wanted, self._found
        taken = self._target(op, key, more, count) is not None
        self.at, self._wanted = at, wanted
        if not taken:
            self._found = found if key not in _FINDS else (key, more)
        return taken

    def _target(self, op: str, key: str, more: str, count: int | None) -> _Move | None:
        if key == op:
            to = self.at if (count or 1) == 1 else self._vertical((count or 1) - 1)
            return None if to is None else _Move(to, "lines")
        if key in "ia" and more:
            return self._object(key == "a", more, count or 1)
        return self._motion(key, more, count, op)

    def _do_operator(self, op: str, key: str, more: str, count: int | None) -> None:
        move = self._target(op, key, more, count)
        if move is None:
            return
        if op == "y" and key == op:
            self._yank(self._region(move, op))
            return
        self._apply(op, move)
        self._wanted = None
        if op == "c":
            self.mode = "insert"

    # --- single commands

    def _put(self, count: int | None, *, before: bool) -> None:
        text, n = self.register, min(count or 1, MOST)
        if not text and not self.is_register_lines:
            return
        if len(self.text) + (len(text) + 1) * n > MOST:
            return
        if self.is_register_lines:
            lines = "\n".join([text] * n)
            if before:
                start = self._start(self.at)
                self._replace(start, start, f"{lines}\n")
                self.at = self._inked(start)
            else:
                end = self._end(self.at)
                self._replace(end, end, f"\n{lines}")
                self.at = self._inked(end + 1)
            return
        at = self.at if before or self._is_empty_line(self.at) else self.at + 1
        self._replace(at, at, text * n)
        self.at = at if "\n" in text else at + len(text) * n - 1

    def _join(self, count: int | None) -> None:
        n = max(2, count or 2)
        below = self.text.count("\n", self.at)
        if below == 0 or (n - 1 > below and n <= 2):
            return
        last = self.text[self._start(self.at) : self._end(self.at)][-1:]
        for _ in range(min(n - 1, below)):
            last = self._join_next(last)

    def _join_next(self, last: str) -> str:
        """Join the next line to this one, whose last part ends so; how that of the next one ends."""
        end = self._end(self.at)
        start = end + 1
        while start < len(self.text) and self.text[start] in " \t":
            start += 1
        head = self.text[self._start(self.at) : end]
        following = self.text[start : start + 1]
        is_apart = head and following not in ("", "\n", ")") and last not in (" ", "\t")
        joined = self.text[start : self._end(start)][-1:]
        self._replace(end, start, " " if is_apart else "")
        self.at = end
        self._stay_in_line()
        return joined

    def _swap_case(self, count: int | None) -> None:
        start, end = self.at, min(self.at + (count or 1), self._end(self.at))
        self._replace(start, end, _swapped(self.text[start:end]))
        self.at = end
        self._stay_in_line()

    def _put_char(self, char: str, count: int | None) -> None:
        n = count or 1
        if self.at + n <= self._end(self.at):
            self._replace(self.at, self.at + n, char * n)
            self.at += n - 1

    def _open(self, count: int | None, *, above: bool) -> None:
        del count
        if above:
            self.at = self._start(self.at)
            self._replace(self.at, self.at, "\n")
        else:
            end = self._end(self.at)
            self._replace(end, end, "\n")
            self.at = end + 1
        self.mode = "insert"

    def _go_insert(self, key: str) -> None:
        if key == "a" and not self._is_empty_line(self.at):
            self.at += 1
        elif key == "A":
            self.at = self._end(self.at)
        elif key == "I":
            start, end = self._start(self.at), self._end(self.at)
            while start < end and self.text[start] in " \t":
                start += 1
            self.at = start
        self.mode = "insert"

    def _begin_insert(self, key: str, count: int | None) -> None:
        def act(n: int | None) -> None:
            if key in "oO":
                self._open(n, above=key == "O")
            else:
                self._go_insert(key)

        act(count)
        self._insert(_Change(act, count, is_counted=True, in_lines=key in "oO"))

    def _again(self, count: int | None) -> None:
        """`.`"""
        change = self._change
        if change is None:
            return
        change.count = count or change.count
        change.act(None if change.is_counted else change.count)
        if not self._is_writing():
            return
        self.mode = "normal"
        back, typed = change.typed
        back = min(back, self.at)
        self._replace(self.at - back, self.at, "")
        self.at -= back
        self._write(typed)
        if change.is_counted and change.count:
            self._write(change.more(self._at_most(change)))
        if self.at > self._start(self.at):
            self.at -= 1

    def _is_writing(self) -> bool:
        return self.mode == "insert"

    def _at_most(self, change: _Change) -> int:
        """How often what was typed is written, as long as that is a text that anyone can read."""
        return min(change.count or 1, MOST // (len(change.typed[1]) + 1))

    def _write(self, text: str) -> None:
        self._replace(self.at, self.at, text)
        self.at += len(text)

    # --- keys

    def _renew(self) -> None:
        self._keys.close()
        self._keys = self._command()
        next(self._keys)
        self.is_pending = False

    def _done(self) -> None:
        """A command is complete."""
        if self.mode == "insert":
            return
        if self.mode == "normal":
            self._stay_in_line()
            self._remember()

    def _counted(self, key: str) -> Generator[None, str, tuple[int | None, str]]:
        """A count, if one begins here, and the key behind it."""
        digits = ""
        while key.isascii() and key.isdigit() and (digits or key != "0"):
            digits += key
            key = yield
        return (min(int(digits[:8]), MOST) if digits else None), key

    def _command(self) -> _Keys:
        """One command, key by key."""
        first = yield
        self.is_pending = True
        if self.mode == "normal":
            self._before = (self.text, self.at)
        count, key = yield from self._counted(first)
        if self.mode in ("visual", "lines"):
            yield from self._in_visual(key, count)
        else:
            yield from self._in_normal(key, count)

    def _in_normal(self, key: str, count: int | None) -> _Keys:
        if len(key) == 1 and key in "dcy":
            more_count, target = yield from self._counted((yield))
            total = min((count or 1) * (more_count or 1), MOST) if count or more_count else None
            more = ""
            if target in ("i", "a") or (len(target) == 1 and target in _FINDS):
                more = yield
            elif target == "g" and (yield) != "g":
                return
            if target == key or target in ("i", "a") or self._is_motion(target):
                self._operator(key, target, more, total)
            return
        if key in ("D", "C", "x", "X", "s", "S", "Y"):
            op, target = _SHORT[key]
            if key == "x" and self._is_empty_line(self.at):
                return
            if key == "X" and self.at == self._start(self.at):
                return
            self._operator(op, target, "", count)
            return
        match key:
            case "i" | "a" | "I" | "A" | "o" | "O":
                self._begin_insert(key, count)
            case "r":
                char = yield
                if len(char) == 1 and self.at + (count or 1) <= self._end(self.at):
                    self._changed(lambda n: self._put_char(char, n or count), count)
            case "~":
                if not self._is_empty_line(self.at):
                    self._changed(self._swap_case, count)
            case "J":
                self._changed(self._join, count)
            case "p" | "P":
                self._changed(lambda n: self._put(n, before=key == "P"), count)
            case ".":
                self._again(count)
            case "u" | "ctrl+r":
                stack, other = (
                    (self._undo, self._undone) if key == "u" else (self._undone, self._undo)
                )
                for _ in range(count or 1):
                    if not self._go_back(stack, other):
                        break
                self._before = (self.text, self.at)
                self._wanted = None
            case "v" | "V":
                self.anchor = self.at
                self.mode = "visual" if key == "v" else "lines"
            case _:
                yield from self._go(key, count)

    def _go(self, key: str, count: int | None) -> _Keys:
        """A motion by itself."""
        more = ""
        if len(key) == 1 and key in _FINDS:
            more = yield
        elif key == "g" and (yield) != "g":
            return
        if not self._is_motion(key):
            return
        wanted = self._wanted
        move = self._motion(key, more, count)
        if move is None:
            return
        self.at = move.to
        if key not in "jk$":
            self._wanted = None
        elif key != "$":
            self._wanted = self._wanted if wanted is None else wanted

    # --- visual modes

    def _in_visual(self, key: str, count: int | None) -> _Keys:
        if key in ("i", "a"):
            more = yield
            move = self._object(key == "a", more, count or 1)
            if move is not None:
                self._select(move)
            return
        if key == "r":
            char = yield
            if len(char) == 1:
                self._on_selection("r", char)
            return
        match key:
            case "v" | "V":
                wanted: Mode = "visual" if key == "v" else "lines"
                self.mode = "normal" if self.mode == wanted else wanted
            case "o" | "O":
                self.at, self.anchor = self.anchor, self.at
                self._wanted = None
            case "d" | "x" | "delete":
                self._on_selection("d")
            case "X" | "D":
                self.mode = "lines"
                self._on_selection("d")
            case "c" | "s":
                self._on_selection("c")
            case "C" | "S" | "R":
                self.mode = "lines"
                self._on_selection("c")
            case "y":
                self._on_selection("y")
            case "Y":
                self.mode = "lines"
                self._on_selection("y")
            case "J":
                self.mode = "lines"
                self._on_selection(key)
            case "~" | "u" | "U" | "p" | "P":
                self._on_selection(key)
            case _:
                yield from self._go(key, count)

    def _select(self, move: _Move) -> None:
        """Select an object; with what is selected already, where that is more than the cursor."""
        assert move.start is not None
        last = move.to - 1 if move.kind == "exclusive" else move.to
        if move.kind == "lines":
            self.mode = "lines"
        if last < move.start:
            return
        if self.anchor == self.at:
            self.anchor = move.start
        else:
            self.anchor = min(self.anchor, move.start)
        self.at = last
        self._wanted = None

    def _on_selection(self, what: str, char: str = "") -> None:
        """Do something with what is selected, and keep it for as much text elsewhere."""
        self._before = (self.text, self.at)
        region = self._selection()
        first = min(self.anchor, self.at)
        n_lines = self.text.count("\n", region.start, region.end)
        tail = region.end - self._start(region.end)
        length = region.end - region.start
        self.mode = "normal"
        if what == "y":
            self._yank(region)
            self.at = region.start if region.is_lines else first
            return
        self._act_on(what, char, region, first)

        def again(count: int | None) -> None:
            del count
            start = self._start(self.at) if region.is_lines else self.at
            end = self._end(start)
            for _ in range(n_lines):
                end = self._end(min(end + 1, len(self.text)))
            if not region.is_lines:
                end = min(end, self._start(end) + tail) if n_lines else min(end, start + length)
            self._act_on(what, char, _Region(start, end, region.is_lines), self.at)

        change = _Change(again, None)
        if self._is_writing():
            self._insert(change)
        else:
            self._change = change

    def _act_on(self, what: str, char: str, region: _Region, first: int) -> None:
        start, end, is_lines = region
        selected = self.text[start:end]
        match what:
            case "d" | "c":
                self._operate(what, region)
                if what == "c":
                    self.mode = "insert"
            case "J":
                self.at = start
                self._join(selected.count("\n") + 1)
            case "p" | "P":
                put, is_put_lines = self.register, self.is_register_lines
                self._yank(region)
                if is_put_lines and not is_lines:
                    self._replace(start, end, f"\n{put}\n")
                    self.at = self._inked(start + 1)
                else:
                    self._replace(start, end, put)
                    in_line = "\n" not in put and not is_lines and not is_put_lines
                    self.at = max(start, start + len(put) - 1) if in_line else start
                if what == "P":
                    self.register, self.is_register_lines = put, is_put_lines
            case _:
                if what == "r":
                    changed = "".join(one if one == "\n" else char for one in selected)
                else:
                    changed = {"~": _swapped, "u": str.lower, "U": str.upper}[what](selected)
                self._replace(start, end, changed)
                self.at = start if is_lines else first


_SHORT = {
    "D": ("d", "$"),
    "C": ("c", "$"),
    "x": ("d", "l"),
    "X": ("d", "h"),
    "s": ("c", "l"),
    "S": ("c", "c"),
    "Y": ("y", "y"),
}
"""Commands that stand for an operator and its motion."""


def _swapped(text: str) -> str:
    """A text with the other case of each letter that has one of the same length."""
    return "".join(other if len(other := char.swapcase()) == 1 else char for char in text)
