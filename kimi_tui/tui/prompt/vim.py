"""vim keys in the prompt: modes, motions, operators, registers, macros and undo.

`Vim` is a model without a screen: keys in, text and cursor out. `VimKeys` connects it to the field: in insert mode the field
handles its keys itself, with its menus and chips; in the other modes each command changes the text once, so that it can be
undone there, too. A chip is one character to the model. Words and text objects are found in `vim_text.py`. Edge cases follow
vim itself, which often differs from its manual; the tests compare with vim.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.widgets.text_area import Selection

from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.prompt.vim_text import WHOLES, Kind, TextRange, VimText

if TYPE_CHECKING:
    from collections.abc import Collection

    from textual import events
    from textual.widgets import TextArea
    from textual.widgets.text_area import Location


Mode = Literal["insert", "replace", "normal", "visual", "lines"]
Outcome = Literal["", "earlier", "later", "escape"]
"""The request of a key to the owner of the text: the message sent before or after, or the effect of Esc if no command is pending."""
Taken = Literal["", "done", "earlier", "later", "write"]
"""The effect of a key: none; carried out; asks for the message sent before or after; a slash, to be inserted."""
_Keys = Generator[None, str, None]

END_OF_LINE = 1 << 30
"""The wanted cell after `$`: the end of every line."""
MOST = 1 << 20
"""The highest count, and the largest number of characters that a command may make of the text."""
MOST_WORK = 1_000_000
"""The limit of the work of a macro, in characters: each of its keys counts the length of the text and `_KEY_WORK`."""
_KEY_WORK = 300
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
"""Special keys, by name, with the commands that they stand for."""
NAMED = frozenset(("left", "right", "up", "down", "home", "end", "delete", "backspace", "space"))
WRITTEN = frozenset("/!#@")
"""Characters that begin a command, a note or a path; in the empty prompt they are inserted in any mode."""


class _Region(NamedTuple):
    """The region of an operator: from `start` to `end` (exclusive), or whole lines without the line feed of the last one."""

    start: int
    end: int
    is_lines: bool = False


@dataclass(slots=True)
class _Change:
    """A command that changes the text, so that `.` can do it again.

    Attributes:
        act: carries it out so many times.
        count: the count before it; None for none.
        typed: the text inserted after it in insert mode, and the number of characters deleted before that.
        is_counted: whether the count repeats the inserted text, and not the command.
        in_lines: whether each repetition is a line of its own.
    """

    act: Callable[[int | None], None]
    count: int | None
    typed: tuple[int, str] = (0, "")
    is_counted: bool = False
    in_lines: bool = False

    def more(self, times: int) -> str:
        """Return the text that is inserted after the first time."""
        return (("\n" if self.in_lines else "") + self.typed[1]) * (times - 1)


class Vim:
    """A text editor with vim's keys, without a screen: mode, cursor, selection, registers and undo. It begins in insert mode.

    Attributes:
        at: the index of the cursor.
        mode: the mode.
        anchor: the index at which the selection begins, in the two visual modes; it includes the cursor.
    """

    def __init__(self) -> None:
        self._in = VimText("")
        self.at = 0
        self.mode: Mode = "insert"
        self.anchor = 0
        self.register = ""
        """The text that was deleted or yanked last."""
        self.is_register_lines = False
        """Whether the register holds whole lines."""
        self._wanted: int | None = None
        """The cell of a line that `j` and `k` go to; None for that of the cursor."""
        self._found: tuple[str, str] | None = None
        """The last of `f F t T`, and its character."""
        self._change: _Change | None = None
        self._writing: _Change | None = None
        """The command that entered insert mode."""
        self._before: tuple[str, int] = ("", 0)
        """Text and cursor before the running command."""
        self._begun: tuple[str, int] = ("", 0)
        """Text and cursor when insert mode began."""
        self._undone: list[tuple[str, int]] = []
        self._undo: list[tuple[str, int]] = []
        self._outcome: Outcome = ""
        self._overwritten: list[str] = []
        """In replace mode, for each typed character the one that it replaced; empty at the end of a line."""
        self.recording = ""
        """The name of the macro that is being recorded; empty for none."""
        self.macros: dict[str, tuple[str, ...]] = {}
        """The keys of each macro."""
        self._recorded: list[str] = []
        self._last_played = ""
        self._coming: deque[str] = deque()
        """The keys of macros that are still to be carried out."""
        self._work = 0
        """The work, see `MOST_WORK`, that macros may still do before the user presses another key."""
        self._failed = False
        """Whether the last command failed, which ends a macro."""
        self.is_pending = False
        """Whether a command is incomplete and waits for further keys."""
        self._keys = self._command()
        next(self._keys)

    # --- the interface

    @property
    def text(self) -> str:
        """The whole text."""
        return self._in.text

    @text.setter
    def text(self, text: str) -> None:
        self._in.text = text

    def load(self, text: str, at: int) -> None:
        """Copy the text of the field: in insert mode the field itself changes it, and in other modes other parts may."""
        if text != self.text and not self._is_writing():
            self._undo.append((self.text, self.at))
            self._undone.clear()
            self.mode = "normal"
            self._renew()
            self._before = (text, at)
        if (text, at) != (self.text, self.at):
            self._wanted = None
            self._overwritten.clear()
        self.text, self.at = text, at
        if self.mode == "normal":
            self._stay_in_line()

    def forget(self) -> None:
        """Reset the undo history and the mode, for another text."""
        self._undo.clear()
        self._undone.clear()
        self._renew()
        self._before = self._begun = (self.text, self.at)
        self._writing = None
        self._stop_recording()

    def begin_insert(self) -> None:
        """Enter insert mode at the cursor."""
        self._renew()
        self._insert(_Change(lambda _: None, None))

    def press(self, key: str) -> Outcome:
        """Handle a key: a character, or the name of another one. A key that plays a macro presses all keys of it."""
        is_recorded, is_typed = bool(self.recording), self.mode == "insert"
        undone, before = [*self._undo], (self.text, self.at)
        self._work = MOST_WORK
        outcome = self._press(key)
        # Text of insert mode is recorded when the mode is left, as the field handles its keys itself.
        if is_recorded and self.recording and not is_typed:
            self._recorded.append(key)
        if not self._coming:
            return outcome
        while self._coming and not self._failed:
            self._work -= len(self.text) + _KEY_WORK
            leads_out = self._press(self._coming.popleft()) in ("earlier", "later")
            self._failed = self._failed or leads_out or self._work < 0
        self._coming.clear()
        if self.text != before[0]:
            self._undo = [*undone, before]
        return ""

    def _press(self, key: str) -> Outcome:
        self._outcome, self._failed = "", False
        if self.mode == "insert":
            self._type(key)
            return ""
        if self.mode == "replace":
            self._type_over(key)
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
        """Leave insert mode; the inserted text becomes one change."""
        change, self._writing = self._writing, None
        if self.mode == "replace":
            self._leave_replace(change)
            return
        self.mode = "normal"
        typed = self._typed()
        if self.recording:
            back, written = typed or (0, "")
            self._recorded += ["backspace"] * back
            self._recorded += ["enter" if char == "\n" else char for char in written]
            self._recorded.append("escape")
        if change is not None and typed is not None:
            change.typed = typed
            if change.is_counted and change.count:
                self._write(change.more(self._at_most(change)))
            self._change = change
        if self.at > self._in.start_of(self.at):
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

    def _type_over(self, key: str) -> None:
        if key == "escape":
            self.leave_insert()
        elif key == "backspace" and self._overwritten:
            self._replace(self.at - 1, self.at, self._overwritten.pop())
            self.at -= 1
        elif key in ("backspace", "left"):
            self.at = max(self._in.start_of(self.at), self.at - 1)
            self._overwritten.clear()
        elif key == "enter" or len(key) == 1:
            self._overwrite("\n" if key == "enter" else key)

    def _overwrite(self, text: str) -> None:
        """Insert text over the characters of the line, in replace mode; a line feed replaces none."""
        for char in text:
            end = self.at if char == "\n" or self._in.is_end(self.at) else self.at + 1
            self._overwritten.append(self.text[self.at : end])
            self._replace(self.at, end, char)
            self.at += 1

    def _leave_replace(self, change: _Change | None) -> None:
        self.mode = "normal"
        written = self.text[self._begun[1] : self.at]

        def act(count: int | None) -> None:
            times = min(count or 1, MOST // (len(written) + 1))
            self._overwrite(written * times)
            self._end_replace()

        if change is not None:
            self._overwrite(written * (min(change.count or 1, MOST // (len(written) + 1)) - 1))
            self._change = _Change(act, change.count)
        self._end_replace()
        self._remember()

    def _end_replace(self) -> None:
        self._overwritten.clear()
        if self.at > self._in.start_of(self.at):
            self.at -= 1
        self._wanted = None
        self._stay_in_line()

    def _typed(self) -> tuple[int, str] | None:
        """Return the number of characters deleted before the cursor, and the text typed, since insert mode began; None if
        other text changed.
        """
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

    def _insert(self, change: _Change, mode: Mode = "insert") -> None:
        self.mode = mode
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
        place = self._in.line_start(top)
        at = min(at, len(text))
        if self._in.start_of(at) == place or (
            top and self._in.start_of(at) == self._in.line_start(top - 1)
        ):
            self.at = at
        else:
            self.at = self._in.inked(place)
        self._stay_in_line()
        return True

    def _replace(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]

    def _stay_in_line(self) -> None:
        """Move the cursor from the end of the line onto its last character, if it has one."""
        self.at = min(self.at, len(self.text))
        if self._in.is_end(self.at) and self.at > self._in.start_of(self.at):
            self.at -= 1

    # --- motions

    def _vertical(self, count: int) -> int | None:
        """Return the place so many lines below, or above; None if there is no such line."""
        line = self._in.line_of(self.at)
        last = self.text.count("\n")
        target = min(max(0, line + count), last)
        if target == line:
            return None
        if self._wanted is None:
            self._wanted = self._in.cells_before(self.at)
        start = self._in.line_start(target)
        end = self._in.end_of(start)
        over = self.mode in ("visual", "lines")
        return min(self._in.in_cell(start, self._wanted), end if over else max(start, end - 1))

    def _find(self, key: str, char: str, count: int, *, again: bool = False) -> TextRange | None:
        step = 1 if key in "ft" else -1
        start, end = self._in.start_of(self.at), self._in.end_of(self.at)
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
        return TextRange(at, "inclusive" if step > 0 else "exclusive")

    def _is_motion(self, key: str) -> bool:
        return key in "hljkwbeWBE0^$gGfFtT;,%{} " or key == "backspace"

    def _motion(self, key: str, more: str, count: int | None, op: str = "") -> TextRange | None:
        """Return the target of a motion from the cursor; None if it fails.

        Args:
            key: the key of the motion.
            more: the character after it, for motions that take one.
            count: the number of repetitions; None for none given.
            op: the pending operator; empty for none.
        """
        n = count or 1
        at = self.at
        start, end = self._in.start_of(at), self._in.end_of(at)
        is_visual = self.mode in ("visual", "lines")
        match key:
            case "h":
                return TextRange(max(start, at - n)) if at > start or op else None
            case "l":
                last = end if is_visual else max(start, end - 1)
                to = min(at + n, last)
                if op and at + n > last and end > start:
                    return TextRange(last, "inclusive")
                return TextRange(to) if to > at or op else None
            case "backspace":
                return TextRange(max(0, at - n)) if at else None
            case " ":
                return self._space(n, op)
            case "j" | "k":
                to = self._vertical(n if key == "j" else -n)
                if to is None and not op and not is_visual:
                    self._outcome = "later" if key == "j" else "earlier"
                return None if to is None else TextRange(to, "lines")
            case "w" | "W":
                return self._word_motion(n, op, big=key == "W")
            case "e" | "E":
                to, reached = self._in.word_end(at, n, big=key == "E")
                return self._ended(to, reached, op, "inclusive")
            case "b" | "B":
                to, reached = self._in.word_back(at, n, big=key == "B")
                return TextRange(to) if reached or (to != at and not op) else None
            case "0":
                return TextRange(start)
            case "^":
                return TextRange(self._in.inked(at))
            case "$":
                return self._to_line_end(n)
            case "G" | "g":
                last_line = self.text.count("\n")
                default = last_line + 1 if key == "G" else 1
                return TextRange(
                    self._in.inked(self._in.line_start(min(count or default, last_line + 1) - 1)),
                    "lines",
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
                match_at = self._in.matching(at)
                return None if match_at is None or count else TextRange(match_at, "inclusive")
            case "{" | "}":
                return self._in.after_paragraphs(at, n, 1 if key == "}" else -1)
            case _:
                return None

    def _space(self, count: int, op: str) -> TextRange | None:
        """Return the place so many characters further, across lines."""
        at = self.at
        for _ in range(count):
            if self._in.is_end(at) or (self._in.is_end(at + 1) and not op):
                if self._in.end_of(at) == len(self.text):
                    break
                at = self._in.end_of(at) + 1
            else:
                at += 1
        return TextRange(at) if at != self.at else None

    def _word_motion(self, count: int, op: str, *, big: bool) -> TextRange | None:
        if op == "c" and self._in.class_of(self.at, big=big):
            # A change of a word never includes the blanks after it.
            to, reached = self._in.word_end(self.at, count, big=big, stop=True)
            return self._ended(to, reached, op, "inclusive")
        to, reached = self._in.word_on(self.at, count, big=big, to_end=bool(op))
        return self._ended(to, reached, op, "exclusive")

    def _ended(self, to: int, reached: bool, op: str, kind: Kind) -> TextRange | None:
        """Return the range of a word motion; if it ends after the last character of a line, it includes that character."""
        is_visual = self.mode in ("visual", "lines")
        if to > self.at and not is_visual and self._in.is_end(to) and to > self._in.start_of(to):
            return TextRange(to - 1, "inclusive")
        return TextRange(to, kind) if reached or op or to != self.at else None

    def _to_line_end(self, count: int) -> TextRange | None:
        at = self.at
        for _ in range(count - 1):
            if self._in.end_of(at) == len(self.text):
                break
            at = self._in.end_of(at) + 1
        if count > 1 and self._in.line_of(at) == self._in.line_of(self.at):
            return None
        self._wanted = END_OF_LINE
        end, start = self._in.end_of(at), self._in.start_of(at)
        over = self.mode in ("visual", "lines")
        return TextRange(end if over else max(start, end - 1), "inclusive")

    # --- operators

    def _region(self, move: TextRange, op: str) -> _Region:
        """Return the region of an operator with a motion."""
        origin = self.at if move.start is None else move.start
        start, end = sorted((origin, move.to))
        if move.kind == "lines":
            return _Region(self._in.start_of(start), self._in.end_of(end), is_lines=True)
        if move.kind == "inclusive":
            end = min(end + 1, self._in.end_of(end))
        elif (
            end > start
            and self._in.start_of(end) == end
            and self._in.line_of(end) > self._in.line_of(start)
        ):
            end -= 1
            if self._in.is_in_indent(start):
                return _Region(self._in.start_of(start), self._in.end_of(end), is_lines=True)
        is_long = "\n" in self.text[start:end]
        if op == "d" and is_long and self._in.is_in_indent(start):
            rest = self.text[end : self._in.end_of(end)]
            if not rest.strip(" \t"):
                return _Region(self._in.start_of(start), self._in.end_of(end), is_lines=True)
        return _Region(start, end)

    @property
    def selected(self) -> tuple[int, int]:
        """The selected region in a visual mode."""
        region = self._selection()
        return region.start, region.end

    def _selection(self) -> _Region:
        start, end = sorted((self.anchor, self.at))
        if self.mode == "lines":
            return _Region(self._in.start_of(start), self._in.end_of(end), is_lines=True)
        return _Region(start, min(end + 1, len(self.text)))

    def _yank(self, region: _Region) -> None:
        self.register = self.text[region.start : region.end]
        self.is_register_lines = region.is_lines

    def _operate(self, op: str, region: _Region, at: int | None = None) -> None:
        """Delete, change, yank or change the case of a region, and leave the cursor at `at`."""
        start, end, is_lines = region
        at = start if at is None else at
        if op == "y":
            self._yank(region)
            return
        if op in _CASES:
            self._replace(start, end, _CASES[op](self.text[start:end]))
            self.at = at
            return
        if op == "d" and not self.text:
            return
        if start < end or is_lines:
            self._yank(region)
        if op == "d" and is_lines:
            has_next = end < len(self.text)
            self._replace(
                start if has_next else max(0, start - 1), min(len(self.text), end + 1), ""
            )
            self.at = self._in.inked(min(start if has_next else max(0, start - 1), len(self.text)))
            return
        self._replace(start, end, "")
        self.at = start

    def _apply(self, op: str, move: TextRange) -> None:
        region = self._region(move, op)
        if op == "y":
            origin = self.at if move.start is None else move.start
            self._yank(region)
            self.at = min(origin, move.to)
        else:
            origin = self.at if move.start is None else move.start
            self._operate(op, region, min(origin, move.to))

    def _changed(self, act: Callable[[int | None], None], count: int | None) -> None:
        """Carry out a command that changes the text, and remember it for `.`."""
        change = _Change(act, count)
        act(count)
        if self.mode == "insert":
            self._insert(change)
        else:
            self._change = change

    def _operator(self, op: str, key: str, more: str, count: int | None) -> None:
        """Run an operator with its motion, its text object, or doubled (`dd`)."""
        if not self._takes(op, key, more, count):
            self._failed = True
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

    def _target(self, op: str, key: str, more: str, count: int | None) -> TextRange | None:
        if key == op:
            to = self.at if (count or 1) == 1 else self._vertical((count or 1) - 1)
            start = self._in.inked(self.at) if op in _CASES else None
            return None if to is None else TextRange(to, "lines", start)
        if key in "ia" and more:
            return self._in.found_object(self.at, key == "a", more, count or 1)
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
                start = self._in.start_of(self.at)
                self._replace(start, start, f"{lines}\n")
                self.at = self._in.inked(start)
            else:
                end = self._in.end_of(self.at)
                self._replace(end, end, f"\n{lines}")
                self.at = self._in.inked(end + 1)
            return
        at = self.at if before or self._in.is_empty_line(self.at) else self.at + 1
        self._replace(at, at, text * n)
        self.at = at if "\n" in text else at + len(text) * n - 1

    def _join(self, count: int | None) -> None:
        n = max(2, count or 2)
        below = self.text.count("\n", self.at)
        if below == 0 or (n - 1 > below and n <= 2):
            self._failed = True
            return
        last = self.text[self._in.start_of(self.at) : self._in.end_of(self.at)][-1:]
        for _ in range(min(n - 1, below)):
            last = self._join_next(last)

    def _join_next(self, last: str) -> str:
        """Join the next line to this one, whose text ends with the given part; return the end of the joined line."""
        end = self._in.end_of(self.at)
        start = end + 1
        while start < len(self.text) and self.text[start] in " \t":
            start += 1
        head = self.text[self._in.start_of(self.at) : end]
        following = self.text[start : start + 1]
        is_apart = head and following not in ("", "\n", ")") and last not in (" ", "\t")
        joined = self.text[start : self._in.end_of(start)][-1:]
        self._replace(end, start, " " if is_apart else "")
        self.at = end
        self._stay_in_line()
        return joined

    def _swap_case(self, count: int | None) -> None:
        start, end = self.at, min(self.at + (count or 1), self._in.end_of(self.at))
        self._replace(start, end, _swapped(self.text[start:end]))
        self.at = end
        self._stay_in_line()

    def _put_char(self, char: str, count: int | None) -> None:
        n = count or 1
        if self.at + n <= self._in.end_of(self.at):
            self._replace(self.at, self.at + n, char * n)
            self.at += n - 1

    def _open(self, count: int | None, *, above: bool) -> None:
        del count
        if above:
            self.at = self._in.start_of(self.at)
            self._replace(self.at, self.at, "\n")
        else:
            end = self._in.end_of(self.at)
            self._replace(end, end, "\n")
            self.at = end + 1
        self.mode = "insert"

    def _go_insert(self, key: str) -> None:
        if key == "a" and not self._in.is_empty_line(self.at):
            self.at += 1
        elif key == "A":
            self.at = self._in.end_of(self.at)
        elif key == "I":
            start, end = self._in.start_of(self.at), self._in.end_of(self.at)
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
        """Repeat the last change (`.`)."""
        change = self._change
        if change is None:
            self._failed = True
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
        if self.at > self._in.start_of(self.at):
            self.at -= 1

    def _is_writing(self) -> bool:
        return self.mode in ("insert", "replace")

    def _at_most(self, change: _Change) -> int:
        """Return the number of repetitions of inserted text, limited so that the text does not grow beyond `MOST`."""
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
        """Complete a command."""
        if self._is_writing():
            return
        if self.mode == "normal":
            self._stay_in_line()
            self._remember()

    def _counted(self, key: str) -> Generator[None, str, tuple[int | None, str]]:
        """Yield a count, if one begins here, and the key after it."""
        digits = ""
        while key.isascii() and key.isdigit() and (digits or key != "0"):
            digits += key
            key = yield
        return (min(int(digits[:8]), MOST) if digits else None), key

    def _command(self) -> _Keys:
        """Read and carry out one command, key by key."""
        first = yield
        self.is_pending = True
        if self.mode == "normal":
            self._before = (self.text, self.at)
        count, key = yield from self._counted(first)
        if key == "q":
            if self.recording:
                self._stop_recording()
            else:
                self._record((yield))
        elif key == "@":
            self._play((yield), count)
        elif self.mode in ("visual", "lines"):
            yield from self._in_visual(key, count)
        else:
            yield from self._in_normal(key, count)

    def _record(self, name: str) -> None:
        """Start recording a macro; a capital letter appends to that macro."""
        if len(name) == 1 and name.isascii() and name.isalnum():
            self.recording = name.lower()
            self._recorded = [*self.macros.get(name.lower(), ())] if name.isupper() else []

    def _stop_recording(self) -> None:
        if self.recording:
            self.macros[self.recording] = tuple(self._recorded)
            self.recording = ""

    def _play(self, name: str, count: int | None) -> None:
        """Put the keys of a macro before all keys that are still to be carried out."""
        name = self._last_played if name == "@" else name.lower()
        keys = self.macros.get(name, ())
        times = min(count or 1, MOST_WORK // (_KEY_WORK * max(1, len(keys))))
        if not keys or (count or 1) > times:
            self._failed = True
            return
        self._last_played = name
        self._coming.extendleft(reversed(keys * times))

    def _in_normal(self, key: str, count: int | None) -> _Keys:
        if key == "g":
            key += yield
        if key in _OPERATORS:
            more_count, target = yield from self._counted((yield))
            total = min((count or 1) * (more_count or 1), MOST) if count or more_count else None
            more = ""
            if target in ("i", "a") or (len(target) == 1 and target in _FINDS):
                more = yield
            elif target == "g" and (yield) != "g":
                return
            if target == key[-1] or target in ("i", "a") or self._is_motion(target):
                self._operator(key, key if target == key[-1] else target, more, total)
            return
        if key in _WITH_NAME:
            # Registers, marks and folds do not exist; their name is not a command of its own.
            yield
            return
        if key in ("D", "C", "x", "X", "s", "S", "Y"):
            op, target = _SHORT[key]
            if key == "x" and self._in.is_empty_line(self.at):
                return
            if key == "X" and self.at == self._in.start_of(self.at):
                self._failed = True
                return
            self._operator(op, target, "", count)
            return
        match key:
            case "i" | "a" | "I" | "A" | "o" | "O":
                self._begin_insert(key, count)
            case "r":
                char = yield
                if len(char) == 1 and self.at + (count or 1) <= self._in.end_of(self.at):
                    self._changed(lambda n: self._put_char(char, n or count), count)
                else:
                    self._failed = True
            case "R":
                self._overwritten.clear()
                self._insert(_Change(lambda _: None, count), "replace")
            case "~":
                if not self._in.is_empty_line(self.at):
                    self._changed(self._swap_case, count)
                else:
                    self._failed = True
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
        """Move the cursor by a motion."""
        more = ""
        if len(key) == 1 and key in _FINDS:
            more = yield
        elif key == "g":
            key += yield
        key = "g" if key == "gg" else key
        if not self._is_motion(key):
            return
        wanted = self._wanted
        move = self._motion(key, more, count)
        if move is None:
            self._failed = True
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
            move = self._in.found_object(self.at, key == "a", more, count or 1)
            if move is not None:
                self._select(move)
            self._failed = move is None
            return
        if key == "r":
            char = yield
            if len(char) == 1:
                self._on_selection("r", char)
            return
        if key == "g":
            key += yield
        match key:
            case "gu" | "gU" | "g~":
                self._on_selection(key[1])
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

    def _select(self, move: TextRange) -> None:
        """Select a text object; if more than the cursor is selected already, extend the selection by it."""
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
        """Apply a command to the selection, and remember it for `.` on a region of the same size."""
        self._before = (self.text, self.at)
        region = self._selection()
        first = min(self.anchor, self.at)
        n_lines = self.text.count("\n", region.start, region.end)
        tail = region.end - self._in.start_of(region.end)
        length = region.end - region.start
        self.mode = "normal"
        if what == "y":
            self._yank(region)
            self.at = region.start if region.is_lines else first
            return
        self._act_on(what, char, region, first)

        def again(count: int | None) -> None:
            del count
            start = self._in.start_of(self.at) if region.is_lines else self.at
            end = self._in.end_of(start)
            for _ in range(n_lines):
                end = self._in.end_of(min(end + 1, len(self.text)))
            if not region.is_lines:
                end = (
                    min(end, self._in.start_of(end) + tail) if n_lines else min(end, start + length)
                )
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
                    self.at = self._in.inked(start + 1)
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


_WITH_NAME = ('"', "'", "`", "m", "z", "Z")
"""Commands that take a character and are not supported: both keys are ignored."""


def _swapped(text: str) -> str:
    """Return a text with the other case of each letter that has one of the same length."""
    return "".join(other if len(other := char.swapcase()) == 1 else char for char in text)


_CASES: dict[str, Callable[[str], str]] = {"gu": str.lower, "gU": str.upper, "g~": _swapped}
_OPERATORS = ("d", "c", "y", *_CASES)


class VimKeys:
    """Passes the keys of a text field to `Vim`, and shows its state in the field.

    Args:
        field: the text field.
        chips: the texts of chips that may be in it, each of which is one character to vim.
    """

    def __init__(self, field: TextArea, chips: Collection[str]) -> None:
        self._field = field
        self._chips = chips
        self._vim = Vim()
        self._wholes: dict[str, str] = {}
        """The characters that stand for chips."""
        self._shown: tuple[str, Selection] | None = None
        """Text and selection of the field after the last command."""
        self._take_over(chips)

    @property
    def mode(self) -> Mode:
        """The mode."""
        return self._vim.mode

    @property
    def recording(self) -> str:
        """The name of the macro that is being recorded; empty for none."""
        return self._vim.recording

    @property
    def selected_text(self) -> str | None:
        """The text selected with `v` or `V`; None for none."""
        if self.mode not in ("visual", "lines"):
            return None
        start, end = self._vim.selected
        return self._written(self._vim.text[start:end])

    def replaced(self, chips: Collection[str]) -> None:
        """Take over another text that was put into the field."""
        self._take_over(chips)
        self._vim.forget()

    def write(self, chips: Collection[str]) -> None:
        """Enter insert mode."""
        if self.mode != "insert":
            self._take_over(chips)
            self._vim.begin_insert()
            self._shown = None

    def handle_key(
        self, event: events.Key, chips: Collection[str], *, is_choosing: bool, is_searching: bool
    ) -> Taken:
        """Carry out a key that is a command.

        Args:
            event: the key.
            chips: the texts of chips that may be in the field.
            is_choosing: whether the completion menu has the arrows and Esc.
            is_searching: whether the text is a search of the history.

        Returns:
            the effect of the key.
        """
        field, vim, key = self._field, self._vim, event.key
        if self.mode in ("insert", "replace"):
            # Most terminals send Esc followed by a letter as that letter with Alt.
            letter = event.character if key.startswith("alt+") and event.is_printable else None
            if is_choosing or is_searching or not (letter or key == "escape"):
                return self._type_over(event, chips) if self.mode == "replace" else ""
            self._take_over(chips)
            vim.leave_insert()
            self._act(letter)
            return "done"
        typed = event.character if event.is_printable and not key.startswith(CHORDS) else None
        if is_choosing and (key in ("up", "down", "escape")):
            return ""
        if typed in WRITTEN and not field.text:
            self.write(chips)
            return ""
        if typed == ":" and not field.text:
            return "write"
        if typed is None and key not in NAMED and key not in ("escape", "ctrl+r"):
            return ""
        if self._shown != (field.text, field.selection):
            self._take_over(chips)
        return self._act(key if key in NAMED or typed is None else typed)

    def _type_over(self, event: events.Key, chips: Collection[str]) -> Taken:
        """Replace a character by a key, in replace mode."""
        field, key = self._field, event.key
        typed = event.character if event.is_printable and not key.startswith(CHORDS) else None
        if not (typed or key == "backspace") or (typed in WRITTEN and not field.text):
            return ""  # a new line replaces no character, so the field inserts it
        if self._shown != (field.text, field.selection):
            self._take_over(chips)
        return self._act(typed or key)

    def _act(self, key: str | None) -> Taken:
        """Carry out a key and show the result in the field."""
        outcome = self._vim.press(key) if key else ""
        if outcome == "escape":
            return ""
        if outcome:
            return outcome
        self._show()
        return "done"

    def follow(self, chips: Collection[str]) -> None:
        """Copy the text that the field has after a command asked for another one."""
        self._take_over(chips)
        self._show()

    # --- the field and the model

    def _take_over(self, chips: Collection[str]) -> None:
        """Copy text and cursor of the field into the model."""
        field, self._chips = self._field, chips
        for chip in chips:
            self._wholes.setdefault(chip, chr(WHOLES + len(self._wholes)))
        text = field.text
        row, column = field.selection.end
        at = sum(len(line) + 1 for line in text.split("\n")[:row]) + column
        for chip in chips:
            start = text.find(chip)
            if 0 <= start < at < start + len(chip):
                at = start
        self._vim.load(self._folded(text), len(self._folded(text[:at])))
        self._shown = None

    def _folded(self, text: str) -> str:
        for chip, char in self._wholes.items():
            if chip in self._chips:
                text = text.replace(chip, char)
        return text

    def _written(self, text: str) -> str:
        """Return the text of the editor with its chips."""
        for chip, char in self._wholes.items():
            text = text.replace(char, chip)
        return text

    def _show(self) -> None:
        """Copy text and cursor of the model into the field."""
        field, vim = self._field, self._vim
        text = self._written(vim.text)
        self._change(text)
        at = len(self._written(vim.text[: vim.at]))
        first = last = at
        if vim.mode in ("visual", "lines"):
            # The character under the cursor belongs to the selection, and the cursor shows it.
            start, end = (len(self._written(vim.text[:one])) for one in vim.selected)
            if vim.mode == "lines":
                first, last = (start, end) if vim.at >= vim.anchor else (end, start)
            else:
                first = start if vim.at >= vim.anchor else end
        field.selection = Selection(_place_in(text, first), _place_in(text, last))
        field.record_cursor_width()
        self._shown = (field.text, field.selection)

    def _change(self, text: str) -> None:
        """Replace the changed part of the field's text, as one change that can be undone."""
        field = self._field
        before = field.text
        if text == before:
            return
        start, most = 0, min(len(text), len(before))
        while start < most and text[start] == before[start]:
            start += 1
        end = 0
        while end < most - start and text[-1 - end] == before[-1 - end]:
            end += 1
        field.history.checkpoint()
        field.replace(
            text[start : len(text) - end],
            _place_in(before, start),
            _place_in(before, len(before) - end),
            maintain_selection_offset=False,
        )
        field.history.checkpoint()


def _place_in(text: str, at: int) -> Location:
    """Return the row and column of a character of a text."""
    return text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1
