"""Pictures of screens, stored as text in `snapshots/`: the text of each row, and below it a letter for the style of each cell.

A stored picture begins with its size, its theme and the legend of its letters:

    80x24 kimi-dark, unmarked is ink on page
    A accent bold
    q ink-quiet
    |  Settings  40 of them
    :  AAAAAAAA  qqqqqqqqqq

Colours have the theme's names, or are hexadecimal if the theme has no such colour. A blank cell has only a background, and a
row without any mark has no row of letters. An SVG file beside a picture shows it as an image: it is drawn again with the
text, names in its last line the text that it was drawn for, and is created if an empty file of its name exists.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import string
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip
from textual.theme import Theme

from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.theme import DARK, KIMI_DARK, KIMI_LIGHT
from support.drawn import strips_of

FOLDER = Path(__file__).parents[2] / "snapshots"

_GROUNDS = list(DARK)[: list(DARK).index("line")]
"""The theme's names of backgrounds, which come first in the theme: a colour with several names gets the first that fits."""
_INKS = [*list(DARK)[len(_GROUNDS) :], *_GROUNDS]
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "underline2", "reverse", "strike", "blink")
_ON_BLANKS = ("underline", "underline2", "reverse", "strike")
"""The attributes that are visible in a blank cell, beside its background."""
_WORDS = re.compile(" +|[^ ]+").findall
_TERMINAL = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
_SIXTEEN = [*_TERMINAL, *(f"bright-{name}" for name in _TERMINAL)]
TEXT, MARKS = "|", ":"


class Pictures:
    """The stored pictures of one test, each of which is compared with a screen or stored again."""

    def __init__(self, test: pytest.Item) -> None:
        self._file = test.path.relative_to(test.config.rootpath)
        self._folder = FOLDER / test.path.parent.name / test.path.stem
        self._test = test.name
        self._updates = bool(test.config.getoption("--snapshot-update"))
        self._taken: set[str] = set()

    def __call__(self, app: App[Any], name: str = "") -> None:
        """Compare the picture with the screen; `name` tells the pictures of one test apart.

        Raises:
            AssertionError: the screen looks different (the message has the rows that differ), or no such picture is stored.
        """
        stem = self._test + (f"[{name}]" if name else "")
        self._taken.add(stem)
        file, drawing = self._folder / f"{stem}.txt", self._folder / f"{stem}.svg"
        stored = file.read_text("utf-8") if file.exists() else ""
        shown = picture_of(app, _legend(stored))
        mark = f"<!-- {hashlib.sha256(shown.encode()).hexdigest()} -->\n"
        is_drawn = not drawing.exists() or drawing.read_text("utf-8").endswith(mark)
        if self._updates:
            self._folder.mkdir(parents=True, exist_ok=True)
            if shown != stored:
                file.write_text(shown, "utf-8")
            if not is_drawn:
                svg = re.sub(r"terminal-\d+", "terminal", app.export_screenshot())
                drawing.write_text(f"{svg.rstrip()}\n{mark}", "utf-8")
            return
        where = file.relative_to(FOLDER).with_suffix("")
        assert stored, f"No picture is stored as {where}.txt. {self._how}"
        if shown != stored:
            rows = "\n".join(changes(stored, shown))
            pytest.fail(f"{where} looks different:\n{rows}\n{self._how}", pytrace=False)
        assert is_drawn, f"{where}.svg was drawn for another text. {self._how}"

    def end(self) -> None:
        """Fail if the test has stored pictures that it no longer takes; delete them if pictures are being stored."""
        own = re.compile(re.escape(self._test) + r"(\[[^]]*\])?")
        for file in sorted(self._folder.glob("*")):
            if own.fullmatch(file.stem) and file.stem not in self._taken:
                assert self._updates, (
                    f"{file.relative_to(FOLDER)} is compared with nothing. {self._how}"
                )
                file.unlink()

    @property
    def _how(self) -> str:
        return f"`make snapshots TESTS={self._file}` stores it anew."


def picture_of(app: App[Any], letters: Mapping[str, str] | None = None) -> str:
    """Return the screen of an app as the text of a stored picture; `letters` are those that some styles have already."""
    theme = app.current_theme
    colours = _Colours(theme)
    rows = [_row(row, colours) for row in strips_of(app)]
    used = sorted({style for _, styles in rows for style in styles if style})
    marks = _letters(used, letters or {}) | {"": " "}
    size = f"{app.size.width}x{app.size.height}"
    lines = [f"{size} {theme.name}, unmarked is {colours.plain}"]
    lines += (f"{marks[style]} {style}" for style in used)
    for text, styles in rows:
        lines.append((TEXT + text).rstrip())
        if any(styles):
            lines.append((MARKS + "".join(marks[style] for style in styles)).rstrip())
    return "\n".join(lines) + "\n"


class _Colours:
    """The names of styles, by the colours of a theme."""

    def __init__(self, theme: Theme) -> None:
        terminal = {f"color({number})": name for number, name in enumerate(_SIXTEEN)}
        palette = {} if theme.ansi else theme.variables
        inks = {palette[name]: name for name in reversed(_INKS) if name in palette}
        grounds = {palette[name]: name for name in reversed(_GROUNDS) if name in palette}
        self._inks, self._grounds = terminal | inks, terminal | inks | grounds
        self._ink, self._page = ("ink", "page") if palette else ("default", "default")
        self._styles: dict[tuple[Style | None, bool], str] = {}
        self.blanks: dict[str, str] = {}
        """The style of a blank cell that looks the same, by the style of a text."""

    @property
    def plain(self) -> str:
        """Return the style that needs no mark."""
        return f"{self._ink} on {self._page}"

    def style(self, style: Style | None, *, is_blank: bool) -> str:
        """Return the name of a style, without the parts that cannot be seen; empty for the plain one."""
        key = (style, is_blank)
        if key not in self._styles:
            self._styles[key] = self._named(style or Style.null(), is_blank=is_blank)
        return self._styles[key]

    def _named(self, style: Style, *, is_blank: bool) -> str:
        seen = _ON_BLANKS if is_blank else _ATTRIBUTES
        words = [attribute for attribute in seen if getattr(style, attribute)]
        ink, ground = _name(style.color, self._inks), _name(style.bgcolor, self._grounds)
        if words or not is_blank:
            words.insert(0, ink)
        if ground != self._page:
            words.append(f"on {ground}")
        named = "" if words == [self._ink] else " ".join(words)
        if not is_blank:
            self.blanks[named] = self._named(style, is_blank=True)
        return named


def _name(colour: Color | None, names: Mapping[str, str]) -> str:
    if colour is None:
        return "default"
    return names.get(colour.name, colour.name)


def _row(strips: Iterable[Strip], colours: _Colours) -> tuple[str, list[str]]:
    """Return the text of a row, and the name of the style of each of its cells.

    A space between two words of one style gets their style.
    """
    text, styles, gaps = "", list[str](), list[int]()
    for segment in chain.from_iterable(strips):
        text += segment.text
        for words in _WORDS(segment.text):
            if is_blank := words[0] == " ":
                gaps += [len(styles)] if len(words) == 1 else []
            style = colours.style(segment.style, is_blank=is_blank)
            styles += [style] * (len(words) if words.isascii() else cell_len(words))
    for gap in gaps:
        if 0 < gap < len(styles) - 1 and (words := styles[gap - 1]) == styles[gap + 1]:
            styles[gap] = words if styles[gap] == colours.blanks.get(words) else styles[gap]
    return text, styles


def _letters(styles: Sequence[str], letters: Mapping[str, str]) -> dict[str, str]:
    """Return a letter for each style: its present one, or the first free one of its last word, a capital if it is bold."""
    marks = {style: letters[style] for style in styles if style in letters}
    others = chain(string.ascii_letters, string.digits, map(chr, range(0x100, 0x2000)))
    for style in styles:
        if style not in marks:
            ink, _, more = style.partition(" ")
            own = "".join(filter(str.isalpha, ink.rpartition("-")[2] if ink != "on" else more))
            own = own.upper() if "bold" in more else own
            free = (letter for letter in chain(own, others) if letter not in marks.values())
            marks[style] = next(free)
    return marks


def _legend(picture: str) -> dict[str, str]:
    """Return the letters of the styles of a stored picture."""
    lines = takewhile(lambda line: line[0] not in TEXT, picture.splitlines()[1:])
    return {line[2:]: line[0] for line in lines}


def changes(stored: str, shown: str) -> Iterator[str]:
    """Yield the rows and the lines of the legend in which two pictures differ, old and new, each with its number on the screen."""
    (old_head, old), (new_head, new) = _divided(stored), _divided(shown)
    yield from (line for line in difflib.ndiff(old_head, new_head) if line[0] in "+-")
    for change, start, end, new_start, new_end in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if change == "equal":
            continue
        for sign, rows, first, last in (("-", old, start, end), ("+", new, new_start, new_end)):
            for number, row in enumerate(rows[first:last], first):
                yield from (f"{sign} {number:3} {line}" for line in row.splitlines())


def _divided(picture: str) -> tuple[list[str], list[str]]:
    """Return the head of a picture, and its rows, each with its marks."""
    head, *rows = re.split(rf"^(?=\{TEXT})", picture, flags=re.MULTILINE)
    return head.splitlines(), rows


async def darken(running: App[Any], pilot: Pilot[Any]) -> None:
    """Switch a light program to a dark theme: widgets that keep their light colours stand out in a picture.

    One picture in each theme would show no more, since a test of the themes checks that they differ only in colours.
    """
    assert running.theme == KIMI_LIGHT.name
    await pilot.pause()
    running.theme = KIMI_DARK.name
    await pilot.pause()


def still(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Prepare pictures of the main screen: no engine, and the same home and zone everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KIMI_TUI_HOME", str(home))
    monkeypatch.setattr(MainScreen, "_open", lambda self: self.bench.views)
